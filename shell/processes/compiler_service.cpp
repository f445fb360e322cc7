#include "shell/processes/compiler_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "protocol/error.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The first start builds the precompiled header, which takes a minute on a fast machine.
constexpr seconds kCompilerStartLimit{15 * 60};
// A question may take so long. The compiler itself gives one up after 5 s.
constexpr seconds kQuestionLimit{15};
// The compiler ends a compile itself when its time is over, or when it is cancelled. This is how long it may take to
// say so.
constexpr milliseconds kCompileGrace{5000}, kCancelGrace{2000};

milliseconds limit_of(const protocol::CompilerRequest& request) {
  const auto* compile = std::get_if<protocol::Compile>(&request);
  if (!compile) return kQuestionLimit;
  const double limit_s = compile->time_limit_s > 0 ? compile->time_limit_s : 60;
  return milliseconds(static_cast<int64_t>(limit_s * 1000)) + kCompileGrace;
}

/// Whether the compiler is another one after it: then its answer has to be waited for.
bool changes_names(const protocol::CompilerRequest& request) {
  return std::holds_alternative<protocol::Compile>(request) || std::holds_alternative<protocol::Settle>(request) ||
         std::holds_alternative<protocol::Forget>(request);
}

}  // namespace

/// The compiler was gone before a request was sent to it.
class CompilerService::NotSent : public ChannelError {
 public:
  using ChannelError::ChannelError;
};

/// A wait that cancel() ends.
class CompilerService::Waiting {
 public:
  explicit Waiting(CompilerService& service) : service_(service), outer_(std::exchange(service.waiting_, true)) {
    if (!outer_) service_.cancelled_ = service_.late_ = false;
  }
  ~Waiting() {
    service_.waiting_ = outer_;
    if (outer_) return;
    if (const auto patience = std::exchange(service_.patience_, std::nullopt)) service_.loop_.cancel(*patience);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  CompilerService& service_;
  bool outer_;
};

CompilerService::CompilerService(EventLoop& loop, CompilerOptions options, TakeProgress progress)
    : loop_(loop), options_(std::move(options)), progress_(std::move(progress)) {
  start();
}

CompilerService::~CompilerService() {
  if (patience_) loop_.cancel(*patience_);
  if (!client_) return;
  if (!gone_) loop_.forget(client_->fd());
  if (sending_) loop_.forget_writable(client_->fd());
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
  bool is_there = false;
  std::string damage;
  try {
    is_there = client_->take();
    while (auto from = client_->next()) take(std::move(*from));
  } catch (const ChannelError& error) {
    damage = error.what();
  }
  if (is_there && damage.empty()) return;
  give_up(!damage.empty() ? damage : !failure_.empty() ? failure_ : "lockstep-compiler " + client_->last_words());
}

void CompilerService::take(FromCompiler from) {
  if (auto* progress = std::get_if<protocol::CompilerProgress>(&from.response)) {
    progress_(*progress);
  } else if (auto* ready = std::get_if<protocol::CompilerReady>(&from.response)) {
    ready_ = *ready;
    was_ready_ = true;
  } else if (auto* failed = std::get_if<protocol::CompilerFailed>(&from.response)) {
    failure_ = failed->message;
  } else {
    outstanding_ = false;
    answer_ = std::move(from);
  }
}

/// Sends what the compiler takes now; the rest follows as it takes more.
void CompilerService::send(const protocol::CompilerRequest& request) {
  client_->send(request);
  if (!client_->has_unsent() || std::exchange(sending_, true)) return;
  loop_.watch_writable(client_->fd(), [this] {
    client_->flush();
    if (client_->has_unsent()) return;
    sending_ = false;
    loop_.forget_writable(client_->fd());
  });
}

std::string CompilerService::no_answer(milliseconds limit) const {
  return fmt::format("lockstep-compiler (process {}) did not answer within {:g} s and was ended", client_->pid(),
                     static_cast<double>(limit.count()) / 1000);
}

/// This compiler answers nothing any more.
void CompilerService::give_up(const std::string& why) {
  if (gone_) return;
  gone_ = true;
  failure_ = why;
  loop_.forget(client_->fd());
  if (std::exchange(sending_, false)) loop_.forget_writable(client_->fd());
  client_->end();
}

const protocol::CompilerReady& CompilerService::wait_ready() {
  const Waiting waiting(*this);
  const bool in_time =
      loop_.run_until([&] { return ready_ || !failure_.empty(); }, EventLoop::Clock::now() + kCompilerStartLimit);
  if (!in_time)
    give_up(fmt::format("lockstep-compiler was not ready within {} s and was ended", kCompilerStartLimit.count()));
  if (!ready_) throw StartError((options_.torch.empty() ? "the session could not start: " : "") + failure_);
  return *ready_;
}

FromCompiler CompilerService::exchange(const protocol::CompilerRequest& request) {
  const Waiting waiting(*this);
  const milliseconds limit = limit_of(request);
  // What was sent before, and is still to be answered, takes moments.
  const auto patience = std::min<milliseconds>(limit, kQuestionLimit);
  const auto is_free = [&] { return gone_ || cancelled_ || !outstanding_; };
  if (!loop_.run_until(is_free, EventLoop::Clock::now() + patience)) give_up(no_answer(patience));
  if (gone_ || cancelled_) throw NotSent(gone_ ? failure_ : "interrupted");
  answer_.reset();
  outstanding_ = true;
  changes_ = changes_names(request);
  const auto* compile = std::get_if<protocol::Compile>(&request);
  compiling_ = compile ? compile->cell : 0;
  send(request);
  late_ =
      !loop_.run_until([&] { return gone_ || answer_ || (cancelled_ && !changes_); }, EventLoop::Clock::now() + limit);
  if (late_) give_up(no_answer(limit));
  compiling_ = 0;
  changes_ = false;
  if (!answer_) throw ChannelError(gone_ ? failure_ : "interrupted");
  return std::move(*answer_);
}

FromCompiler CompilerService::ask(const protocol::CompilerRequest& request) {
  const auto* compile = std::get_if<protocol::Compile>(&request);
  const Waiting waiting(*this);
  try {
    try {
      return ask_running(request);
    } catch (const NotSent&) {
      if (cancelled_) throw;
      // It has ended, or been ended, over what came before: this request has nothing to do with that.
      return ask_running(request);
    }
  } catch (const ChannelError& error) {
    const std::string reason = error.what();
    if (cancelled_ || late_) {  // the next request starts another, so that a cancelled one ends at once
      if (compile) return unanswered(*compile, reason);
      throw ChannelError(reason);
    }
    try {
      restart("");
    } catch (const StartError&) {
      if (!cancelled_) throw;
    }
    if (!compile) throw ChannelError(reason + "\nit has been started again");
    return unanswered(*compile, reason);
  } catch (const StartError&) {
    if (!cancelled_ || !compile || !was_ready_) throw;
    return unanswered(*compile, "");  // given up while it was started again
  }
}

FromCompiler CompilerService::ask_running(const protocol::CompilerRequest& request) {
  const auto* compile = std::get_if<protocol::Compile>(&request);
  if (was_ready_) {
    // It may have ended while nothing was asked: then nothing is lost.
    loop_.run_once();
    if (gone_ || !ready_) restart(failure_);
  }
  wait_ready();
  auto answer = exchange(request);
  if (compile) {
    const auto* compiled = std::get_if<protocol::Compiled>(&answer.response);
    if (compiled && compiled->status == CompileStatus::ok) {
      unsettled_ = *compile;
      if (!compiled->repeatable) ++definitions_;
    }
  } else if (std::holds_alternative<protocol::Forget>(request)) {
    journal_.push_back(request);
    ++definitions_;
  }
  return answer;
}

FromCompiler CompilerService::unanswered(const protocol::Compile& compile, const std::string& reason) {
  protocol::Compiled compiled;
  compiled.cell = compile.cell;
  compiled.status = cancelled_ ? CompileStatus::cancelled : late_ ? CompileStatus::timeout : CompileStatus::crash;
  compiled.rendered = reason;
  return {compiled, {}};
}

void CompilerService::settle(const protocol::Settle& settle) {
  if (unsettled_ && settle.loaded) {
    journal_.push_back(*unsettled_);
    journal_.push_back(settle);
  }
  unsettled_.reset();
  const Waiting waiting(*this);
  const auto deadline = EventLoop::Clock::now() + kQuestionLimit;
  loop_.run_until([&] { return !outstanding_ || gone_ || cancelled_; }, deadline);
  if (outstanding_) give_up(no_answer(kQuestionLimit));
  if (gone_) return;  // the journal has it
  outstanding_ = true;
  send(settle);
}

/// `why`: what no error has said yet.
void CompilerService::restart(const std::string& why) {
  progress_({.message = (why.empty() ? "" : why + "\n") + std::string("lockstep-compiler is started again") +
                        (journal_.empty() ? "" : "; the cells so far are compiled again for it, none of them runs"),
             .step = {}});
  if (!gone_) loop_.forget(client_->fd());
  if (std::exchange(sending_, false)) loop_.forget_writable(client_->fd());
  loop_.forget(client_->output().fd());
  start();
  wait_ready();
  for (const auto& request : journal_) {
    try {
      exchange(request);
    } catch (const ChannelError& error) {
      throw StartError(std::string("the compiler ended again while it compiled the cells so far: ") + error.what());
    }
  }
}

void CompilerService::cancel() {
  if (!ready_ && failure_.empty()) {
    failure_ = "interrupted";
    cancelled_ = true;
  } else if (waiting_ && !gone_) {
    cancelled_ = true;
    if (!changes_) return;  // what has no effect is not waited for
    if (compiling_ != 0) send(protocol::Cancel{compiling_});
    if (!patience_)
      patience_ = loop_.at(EventLoop::Clock::now() + kCancelGrace, [this] {
        patience_.reset();
        give_up(fmt::format("lockstep-compiler (process {}) did not answer an interrupt within {:g} s and was ended",
                            client_->pid(), static_cast<double>(kCancelGrace.count()) / 1000));
      });
  }
}

}  // namespace lockstep::shell
