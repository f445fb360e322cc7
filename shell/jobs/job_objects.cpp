#include "shell/jobs/job_objects.h"

#include "protocol/error.h"

namespace lockstep::shell {

const protocol::CompilerReady& JobObjects::wait_ready() { return compiler_ ? compiler_->wait_ready() : ready_; }

FromCompiler JobObjects::ask(const protocol::CompilerRequest& request) {
  const auto* compile = std::get_if<protocol::Compile>(&request);
  if (!compiler_) {
    if (std::holds_alternative<protocol::ListNames>(request)) return {protocol::Names{}, {}};
    throw ChannelError("no C++ cell has run at this prompt");
  }
  try {
    return compiler_->ask(request);
  } catch (const StartError& error) {
    compiler_.reset();
    if (!compile) throw ChannelError(error.what());
    protocol::Compiled compiled;
    compiled.cell = compile->cell;
    compiled.status = CompileStatus::crash;
    compiled.rendered = std::string(error.what()) + "; names of C++ cells are gone";
    return {compiled, {}};
  }
}

void JobObjects::settle(const protocol::Settle& settle) {
  if (compiler_) compiler_->settle(settle);
}

void JobObjects::cancel() {
  if (compiler_) compiler_->cancel();
}

}  // namespace lockstep::shell
