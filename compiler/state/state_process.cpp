#include "compiler/state/state_process.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <new>
#include <optional>

#include "compiler/front_end/front_end.h"
#include "compiler/process/huge_pages.h"
#include "compiler/process/memory_limit.h"
#include "compiler/process/shared_folder.h"
#include "compiler/state/header_cache.h"
#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/pipe_channel.h"

namespace lockstep::compiler {

using nlohmann::json;

namespace {

json answer(CellCompiler& compiler, const json& message, std::vector<std::string>& frames) {
  const auto what = message.at("do").get<std::string>();
  if (what == "practise") {
    const bool practised = compiler.practise();
    if (practised) join_pages();
    return {{"practised", practised}};
  }
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
    throw ChannelError("a state process has no answer to '" + what + "'");
  return {{"answer", protocol::encode(response)}};
}

[[noreturn]] void serve(CellCompiler& compiler, Descriptor link, pid_t supervisor, int64_t memory_limit_mb) {
  try {
    end_when_out_of_memory();
    while (auto message = protocol::receive_message(link.get())) {
      if (message->header.at("do") == "copy") {
        auto [ours, theirs] = make_socket_pair();
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
      {
        const MemoryLimit limit(memory_limit_mb);
        reply.header = answer(compiler, message->header, reply.frames);
      }
      protocol::send_message(link.get(), reply);
    }
  } catch (const ChannelError&) {
    // The supervisor has ended, and so does this process.
  }
  ::_exit(0);
}

/// Runs `work`, which does not return, on a large stack. Clang limits the depth of most nesting (templates: 1,024) and
/// needs up to 100 KB for one level; it does not limit the rest (an expression of 10,000 operators). On the stack that
/// `ulimit -s` allows, mostly 8 MB, it would crash. Memory that is not touched costs nothing.
[[noreturn]] void run_on_large_stack(std::function<void()> work) {
  constexpr size_t kStackSize = size_t{256} << 20, kLeastSize = size_t{8} << 20;
  static std::function<void()> on_stack;
  on_stack = std::move(work);
  for (size_t size = kStackSize; size >= kLeastSize; size /= 2) {
    void* stack =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) continue;
    ::mprotect(stack, static_cast<size_t>(::sysconf(_SC_PAGESIZE)), PROT_NONE);  // running over its end is a crash
    static ucontext_t here, there;
    if (::getcontext(&there) != 0) break;
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = size;
    there.uc_link = nullptr;
    ::makecontext(&there, [] { on_stack(); }, 0);
    ::swapcontext(&here, &there);
  }
  on_stack();  // no memory for another stack: this one has to do
  ::_exit(1);
}

[[noreturn]] void prepare_and_serve(const Options& options, Descriptor link, pid_t supervisor) {
  const auto say = [&](json header) { protocol::send_message(link.get(), {std::move(header), {}}); };
  const auto fail = [&](const std::string& why) {
    try {
      say({{"failed", why}});
    } catch (const ChannelError&) {
      // Nobody is left to receive it.
    }
  };
  try {
    const auto progress = [&](const protocol::CompilerProgress& step) {
      say({{"progress", protocol::encode(protocol::CompilerResponse(step))}});
    };
    static std::optional<CellCompiler> compiler;
    HeaderFiles header = provide_header(options, progress);
    try {
      compiler.emplace(options, header.precompiled);
    } catch (const StartError& error) {
      // It may be damaged in a way that size and time do not show. If not, only this session can't read it.
      if (!discard_if_damaged(std::filesystem::path(header.precompiled).parent_path()))
        throw StartError(std::string(error.what()) +
                         ", though it is undamaged: does this session have too little memory (ulimit -v)?");
      header = provide_header(options, progress);
      compiler.emplace(options, header.precompiled);
    }
    compiler->add_prelude(header.prelude);
    compiler->add_library_names(header.library_names);
    compiler->warm_up();
    join_pages();
    say({{"ready",
          {{"prelude", header.prelude}, {"libtorch", options.libtorch_version}, {"compiler", compiler_version()}}}});
    serve(*compiler, std::move(link), supervisor, options.memory_limit_mb);
  } catch (const std::bad_alloc&) {
    fail("the compiler has too little memory (ulimit -v)");
  } catch (const std::exception& error) {
    fail(error.what());
  }
  ::_exit(1);
}

}  // namespace

void run_first_state(const Options& options, Descriptor link, pid_t supervisor) {
  run_on_large_stack([&] { prepare_and_serve(options, std::move(link), supervisor); });
}

}  // namespace lockstep::compiler
