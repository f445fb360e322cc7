#include "shell/compiler_service.h"

#include "protocol/error.h"

namespace lockstep::shell {

CompilerService::CompilerService(EventLoop& loop, CompilerOptions options,
                                 std::function<void(const std::string&)> progress)
    : loop_(loop), options_(std::move(options)), progress_(std::move(progress)) {
  start();
}

CompilerService::~CompilerService() {
  if (!client_) return;
  if (!gone_) loop_.forget(client_->fd());
  loop_.forget(client_->output().fd());
}

void CompilerService::start() {
  ready_.reset();
  failure_.clear();
  gone_ = outstanding_ = false;
  answer_.reset();
  client_ = std::make_unique<CompilerClient>(options_);
  loop_.watch(client_->fd(), [this] { receive(); });
  loop_.watch(client_->output().fd(), [this] {
    if (!client_->output().take()) loop_.forget(client_->output().fd());
  });
}

void CompilerService::receive() {
  std::optional<FromCompiler> from;
  try {
    from = client_->receive();
  } catch (const ChannelError& error) {
    failure_ = error.what();
  }
  if (!from) {
    gone_ = true;
    loop_.forget(client_->fd());
    if (failure_.empty()) failure_ = "lockstep-compiler " + client_->last_words();
    return;
  }
  if (auto* progress = std::get_if<protocol::CompilerProgress>(&from->response)) {
    progress_(progress->message);
  } else if (auto* ready = std::get_if<protocol::CompilerReady>(&from->response)) {
    ready_ = *ready;
  } else if (auto* failed = std::get_if<protocol::CompilerFailed>(&from->response)) {
    failure_ = failed->message;
  } else {
    outstanding_ = false;
    answer_ = std::move(from);
  }
}

const protocol::CompilerReady& CompilerService::wait_ready() {
  loop_.run_until([&] { return ready_ || !failure_.empty(); });
  if (!ready_) throw StartError("the session could not start: " + failure_);
  return *ready_;
}

FromCompiler CompilerService::exchange(const protocol::CompilerRequest& request) {
  loop_.run_until([&] { return !outstanding_ || gone_; });
  answer_.reset();
  if (!gone_) {
    outstanding_ = true;
    try {
      client_->send(request);
    } catch (const ChannelError&) {
      // It ended meanwhile; reading will say so, after what it may have answered before.
    }
    loop_.run_until([&] { return answer_ || gone_; });
  }
  if (!answer_) throw ChannelError(failure_);
  return std::move(*answer_);
}

FromCompiler CompilerService::ask(const protocol::CompilerRequest& request) {
  wait_ready();
  // It may have ended while nothing was asked: then nothing is lost.
  loop_.run_once();
  if (gone_) restart();
  const auto* compile = std::get_if<protocol::Compile>(&request);
  try {
    compiling_ = compile ? compile->cell : 0;
    auto answer = exchange(request);
    compiling_ = 0;
    if (compile) {
      const auto* compiled = std::get_if<protocol::Compiled>(&answer.response);
      if (compiled && compiled->status == "ok") {
        unsettled_ = *compile;
        if (!compiled->repeatable) ++definitions_;
      }
    } else if (std::holds_alternative<protocol::Forget>(request)) {
      journal_.push_back(request);
      ++definitions_;
    }
    return answer;
  } catch (const ChannelError&) {
    compiling_ = 0;
    const std::string reason = failure_;
    restart();
    if (!compile) throw ChannelError(reason + "\nit has been started again");
    protocol::Compiled crashed;
    crashed.cell = compile->cell;
    crashed.status = "crash";
    crashed.rendered = reason;
    return {crashed, {}};
  }
}

void CompilerService::settle(const protocol::Settle& settle) {
  if (unsettled_ && settle.loaded) {
    journal_.push_back(*unsettled_);
    journal_.push_back(settle);
  }
  unsettled_.reset();
  loop_.run_until([&] { return !outstanding_ || gone_; });
  if (gone_) return;  // the journal has it
  outstanding_ = true;
  try {
    client_->send(settle);
  } catch (const ChannelError&) {
    // As in exchange: the next request finds out.
  }
}

void CompilerService::restart() {
  progress_(failure_ + "\nStarting it again" +
            (journal_.empty() ? "" : "; the cells so far are compiled again for it, none of them runs"));
  if (!gone_) loop_.forget(client_->fd());
  loop_.forget(client_->output().fd());
  start();
  wait_ready();
  for (const auto& request : journal_) {
    try {
      exchange(request);
    } catch (const ChannelError& error) {
      throw StartError(std::string("the compiler ended again while it was told the cells so far: ") + error.what());
    }
  }
}

void CompilerService::cancel() {
  if (!ready_ && failure_.empty()) {
    failure_ = "interrupted";
  } else if (compiling_ != 0 && outstanding_ && !gone_) {
    try {
      client_->send(protocol::Cancel{compiling_});
    } catch (const ChannelError&) {
      // It ended meanwhile, and so did the compile.
    }
  }
}

}  // namespace lockstep::shell
