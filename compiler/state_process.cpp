#include "compiler/state_process.h"

#include <unistd.h>

#include <filesystem>
#include <optional>

#include "compiler/front_end.h"
#include "compiler/header_cache.h"
#include "compiler/shared_folder.h"
#include "protocol/error.h"
#include "protocol/pipe_channel.h"

namespace lockstep::compiler {

using nlohmann::json;

namespace {

json answer(CellCompiler& compiler, const json& message, std::vector<std::string>& frames) {
  const auto what = message.at("do").get<std::string>();
  if (what == "compile") {
    const auto request = std::get<protocol::Compile>(protocol::decode_request(message.at("request")));
    CellResult result = compiler.compile(request, message.at("attempt").get<Attempt>());
    frames = std::move(result.frames);
    json reply = {{"answer", protocol::encode(protocol::CompilerResponse(std::move(result.compiled)))}};
    if (result.again) reply["again"] = *result.again;
    return reply;
  }
  const auto request = protocol::decode_request(message.at("request"));
  protocol::CompilerResponse response = protocol::Settled{};
  if (const auto* settle = std::get_if<protocol::Settle>(&request))
    compiler.settle(*settle);
  else if (const auto* forget = std::get_if<protocol::Forget>(&request))
    compiler.forget(*forget);
  else if (std::holds_alternative<protocol::ListNames>(request))
    response = compiler.list_names();
  else if (const auto* complete = std::get_if<protocol::Complete>(&request))
    response = compiler.complete(*complete);
  else if (const auto* inspect = std::get_if<protocol::Inspect>(&request))
    response = compiler.inspect(*inspect);
  else
    throw ChannelError("a state of the compiler does not answer '" + what + "'");
  return {{"answer", protocol::encode(response)}};
}

[[noreturn]] void serve(CellCompiler& compiler, Descriptor link, pid_t supervisor) {
  try {
    while (auto message = protocol::receive_message(link.get())) {
      if (message->header.at("do") == "copy") {
        auto [ours, theirs] = make_channel();
        const pid_t pid = start_copy(supervisor);
        if (pid == 0) {
          ours.reset();
          link = std::move(theirs);
          continue;
        }
        send_descriptor(link.get(), ours.get(), pid);
        continue;
      }
      protocol::PipeMessage reply;
      reply.header = answer(compiler, message->header, reply.frames);
      protocol::send_message(link.get(), reply);
    }
  } catch (const ChannelError&) {
    // The supervisor is gone, and this process with it.
  }
  ::_exit(0);
}

}  // namespace

void run_first_state(const Options& options, Descriptor link, pid_t supervisor) {
  const auto say = [&](json header) { protocol::send_message(link.get(), {std::move(header), {}}); };
  try {
    const auto progress = [&](const std::string& text) { say({{"progress", text}}); };
    static std::optional<CellCompiler> compiler;
    HeaderFiles header = provide_header(options, progress);
    try {
      compiler.emplace(options, header.precompiled);
    } catch (const StartError& error) {
      // Damaged in a way that size and time do not show? Otherwise it is this session that can't read it, and others can.
      if (!discard_if_damaged(std::filesystem::path(header.precompiled).parent_path()))
        throw StartError(std::string(error.what()) +
                         ", though it is undamaged: does this session have too little memory " + "(ulimit -v)?");
      header = provide_header(options, progress);
      compiler.emplace(options, header.precompiled);
    }
    compiler->add_prelude(header.prelude);
    compiler->warm_up();
    say({{"ready",
          {{"prelude", header.prelude}, {"libtorch", LOCKSTEP_LIBTORCH_VERSION}, {"compiler", compiler_version()}}}});
    serve(*compiler, std::move(link), supervisor);
  } catch (const std::exception& error) {
    try {
      say({{"failed", error.what()}});
    } catch (const ChannelError&) {
      // Nobody is left to hear it.
    }
    ::_exit(1);
  }
}

}  // namespace lockstep::compiler
