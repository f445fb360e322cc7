#include "shell/built/built_objects.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "protocol/error.h"
#include "protocol/files.h"

namespace lockstep::shell {

FromCompiler with_frames(protocol::Compiled compiled, const BuiltFile& file) {
  FromCompiler result;
  for (auto& object : compiled.objects) {
    result.frames.push_back(file.blobs.at(static_cast<size_t>(object.frame)));
    object.frame = static_cast<int64_t>(result.frames.size()) - 1;
  }
  result.response = std::move(compiled);
  return result;
}

BuiltObjects::BuiltObjects(std::shared_ptr<const BuiltFile> file, std::string name, size_t session,
                           const CompilerOptions& options)
    : file_(std::move(file)), name_(std::move(name)), directory_(options.session_directory), views_(file_, session) {}

const protocol::CompilerReady& BuiltObjects::wait_ready() {
  if (!ready_.prelude.empty()) return ready_;
  const std::string path = directory_ + "/libprelude.so";
  if (const int error = protocol::replace_file(path, file_->blobs.at(file_->prelude), 0600))
    throw StartError("the session could not start: " + path + " can't be written: " + std::strerror(error));
  ready_.versions = file_->versions;
  ready_.prelude = path;
  return ready_;
}

FromCompiler BuiltObjects::ask(const protocol::CompilerRequest& request) {
  if (const auto* cell = std::get_if<protocol::Compile>(&request)) return compile(*cell);
  if (const auto* forget = std::get_if<protocol::Forget>(&request)) {
    if (!views_.forget(*forget)) throw ChannelError(name_ + ": " + views_.why_not());
    ++definitions_;
    return {protocol::Settled{}, {}};
  }
  if (std::holds_alternative<protocol::ListNames>(request)) return {views_.names(), {}};
  if (const auto* question = std::get_if<protocol::Inspect>(&request)) {
    if (const auto answer = views_.inspect(*question)) return {*answer, {}};
    throw ChannelError(fmt::format("{} does not say what '{}' is: it was not asked when the file was built", name_,
                                   question->expression));
  }
  throw ChannelError(name_ + " runs without the compiler, which alone can answer this");
}

FromCompiler BuiltObjects::compile(const protocol::Compile& request) {
  if (auto compiled = views_.compile(request)) {
    if (compiled->status == CompileStatus::ok && !compiled->repeatable) ++definitions_;
    return with_frames(std::move(*compiled), *file_);
  }
  protocol::Compiled refused;
  refused.cell = request.cell;
  refused.status = CompileStatus::error;
  refused.rendered = fmt::format("{} has no object for this cell: {}\n", name_, views_.why_not());
  refused.diagnostics.push_back(
      {.severity = DiagnosticSeverity::error, .line = 0, .column = 0, .file = name_, .message = views_.why_not()});
  return {std::move(refused), {}};
}

}  // namespace lockstep::shell
