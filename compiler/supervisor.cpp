#include "compiler/supervisor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/process/idle_processor.h"
#include "compiler/process/memory_limit.h"
#include "compiler/process/process.h"
#include "compiler/state/state_process.h"
#include "protocol/compiler_messages.h"
#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/pipe_channel.h"

namespace lockstep::compiler {

namespace {

using namespace protocol;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kSpares = 2;
constexpr std::chrono::seconds kQuestionLimit{5};  // of completion and inspection
constexpr std::chrono::milliseconds kIdle{500};  // without a request, before a copy practises
constexpr int kPractices = 3;            // at most: a cell ends the one that runs

/// A state process and the link to it. Ends with its owner.
class State {
 public:
  State(Descriptor link, pid_t pid) : link_(std::move(link)), pid_(pid) {}
  State(State&& other) noexcept : link_(std::move(other.link_)), pid_(std::exchange(other.pid_, -1)) {}
  State& operator=(State&& other) noexcept {
    std::swap(link_, other.link_);
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~State() { end(); }

  int fd() const { return link_.get(); }
  /// Has its process ended? A process that waits for work sends nothing, so its link is readable only when it has
  /// ended.
  bool is_gone() const { return is_ready(link_.get(), POLLIN); }
  void send(const json& header) { send_message(link_.get(), {header, {}}); }
  std::optional<PipeMessage> receive() { return receive_message(link_.get()); }

  State copy() {
    send({{"do", "copy"}});
    auto [link, pid] = receive_descriptor(link_.get());
    return State(std::move(link), pid);
  }

  /// Kills the process if it runs. Returns the signal that had ended it before, 0 if there was none.
  int end() {
    if (pid_ <= 0) return 0;
    int status = 0;
    const pid_t done = ::waitpid(pid_, &status, WNOHANG);
    if (done == 0) {
      ::kill(pid_, SIGKILL);
      wait_ended();
    }
    pid_ = -1;
    return done > 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  /// Waits for a process that has closed its link. Returns what waitpid() gives.
  int wait_ended() {
    int status = 0;
    uninterrupted([&] { return ::waitpid(pid_, &status, 0); });
    pid_ = -1;
    return status;
  }

 private:
  Descriptor link_;
  pid_t pid_ = -1;
};

class Supervisor {
 public:
  explicit Supervisor(const Options& options)
      : options_(options),
        channel_(options.channel_fd),
        practices_left_(options.practises == Practice::never ? 0 : kPractices) {}

  int run() {
    if (!start()) return 1;
    while (true) {
      std::optional<PipeMessage> message = next_request();
      if (!message) return 0;
      handle(decode_request(message->header), message->header);
      replace_lost();
    }
  }

 private:
  /// clang does not survive every failed allocation.
  static std::string crashed_at_start() {
    rlimit memory = {};
    const bool is_limited = ::getrlimit(RLIMIT_AS, &memory) == 0 && memory.rlim_cur != RLIM_INFINITY;
    return std::string("the compiler crashed while it read the precompiled header") +
           (is_limited ? ": does this session have too little memory (ulimit -v)?" : "");
  }

  bool start() {
    const auto begin = Clock::now();
    auto [ours, theirs] = make_socket_pair();
    const pid_t self = ::getpid();
    const pid_t pid = start_copy(self);
    if (pid == 0) {
      ours.reset();
      run_first_state(options_, std::move(theirs), self);
    }
    theirs.reset();
    current_.emplace(std::move(ours), pid);
    for (;;) {
      const auto message = wait_first();
      if (!message) {
        if (!session_gone_) reply(CompilerFailed{crashed_at_start()});
        return false;
      }
      const json& header = message->header;
      if (header.contains("progress")) {
        reply(decode_response(header["progress"]));
      } else if (header.contains("failed")) {
        reply(CompilerFailed{header["failed"].get<std::string>()});
        return false;
      } else {
        CompilerReady ready;
        ready.prelude = header.at("ready").at("prelude").get<std::string>();
        ready.versions.libtorch = header.at("ready").at("libtorch").get<std::string>();
        ready.versions.compiler = header.at("ready").at("compiler").get<std::string>();
        ready.ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
        reply(ready);
        replace_lost();
        return true;
      }
    }
  }

  /// Returns a message of the first state, or nothing if that state or the session has ended.
  std::optional<PipeMessage> wait_first() {
    pollfd fds[] = {{current_->fd(), POLLIN, 0}, {channel_, POLLRDHUP, 0}};
    wait_for(fds);
    session_gone_ = fds[1].revents != 0;
    return session_gone_ ? std::nullopt : current_->receive();
  }

  /// False after the deadline.
  static bool wait_for(std::span<pollfd> fds, std::optional<Clock::time_point> deadline = std::nullopt) {
    const int ready = poll_until(fds, deadline);
    if (ready < 0) throw StartError(std::string("poll failed: ") + std::strerror(errno));
    return ready > 0;
  }

  void reply(const CompilerResponse& response) { send_message(channel_, {encode(response), {}}); }

  /// Waits for the session. Meanwhile replaces states that are killed while they wait (for lack of memory, by a
  /// person), so that no cell fails for that reason; and while nobody waits for a cell, a copy practises.
  std::optional<PipeMessage> next_request() {
    for (;;) {
      replace_lost();
      if (!waiting_.empty()) {
        auto message = std::move(waiting_.front());
        waiting_.pop_front();
        return message;
      }
      std::vector<pollfd> fds = {{channel_, POLLIN, 0}};
      for (const State* state : newest_and_spares()) fds.push_back({state->fd(), POLLIN, 0});
      if (practising_) fds.push_back({practising_->fd(), POLLIN, 0});
      const bool may_practise = practices_left_ > 0 && !practising_ && !candidate_;
      if (!wait_for(fds, may_practise ? std::optional(Clock::now() + kIdle) : std::nullopt)) {
        // Other sessions may be starting.
        if (options_.practises == Practice::always || has_idle_processor()) start_practice();
        continue;
      }
      const bool lost = std::any_of(fds.begin() + 1, fds.end(), [](const pollfd& fd) { return fd.revents != 0; });
      if (!lost && fds.front().revents != 0) return receive_message(channel_);
      if (practising_ && fds.back().revents != 0) end_practice();
    }
  }

  void start_practice() {
    --practices_left_;
    try {
      practising_.emplace(newest().copy());
      practising_->send({{"do", "practise"}});
    } catch (const ChannelError&) {
      practising_.reset();  // it was killed
    }
  }

  /// The copy that has practised becomes the current state.
  void end_practice() {
    practices_left_ = 0;
    State practised = std::move(*practising_);
    practising_.reset();
    const auto answer = practised.receive();
    if (!answer || !answer->header.at("practised").get<bool>())
      return;  // it does not compile after this session's cells, or was killed
    current_ = std::move(practised);
    spares_.clear();  // of the state before
  }

  /// Is called before a change of the current state, which the copy that practises does not see.
  void stop_practice() { practising_.reset(); }

  State& newest() { return candidate_ ? *candidate_ : *current_; }

  /// Replaces the newest state by a spare if it has ended, and adds missing spares. If no state is left, this process
  /// ends, and the session, which knows all cells, starts it again.
  void replace_lost() {
    std::erase_if(spares_, [](const State& spare) { return spare.is_gone(); });
    while (spares_.size() < kSpares || newest().is_gone()) {
      if (newest().is_gone()) {
        if (spares_.empty()) throw StartError("lockstep-compiler has lost its state: its processes were killed");
        newest() = std::move(spares_.front());
        spares_.pop_front();
      } else {
        try {
          spares_.push_back(newest().copy());
        } catch (const ChannelError&) {
          continue;  // it ended just now
        }
      }
    }
  }

  bool session_is_gone() const { return is_ready(channel_, POLLRDHUP); }

  State take_spare() {
    if (spares_.empty()) return newest().copy();
    State state = std::move(spares_.front());
    spares_.pop_front();
    return state;
  }

  void drop_candidate() {
    if (!candidate_) return;
    candidate_.reset();
    spares_.clear();  // copies of it
    replace_lost();
  }

  void handle(const CompilerRequest& request, const json& header) {
    if (const auto* compile = std::get_if<Compile>(&request)) {
      stop_practice();
      drop_candidate();  // it was not settled
      this->compile(*compile, header);
    } else if (const auto* settle = std::get_if<Settle>(&request)) {
      if (!settle->loaded) {
        drop_candidate();
      } else if (candidate_) {
        ask_all("settle", header);
        current_ = std::move(candidate_);
        candidate_.reset();
      }
      reply(Settled{});
    } else if (std::holds_alternative<Forget>(request)) {
      stop_practice();
      drop_candidate();
      ask_all("forget", header);
      reply(Settled{});
    } else if (std::holds_alternative<ListNames>(request)) {
      auto answer = ask(newest(), "names", header);
      if (!answer) {  // it has just been killed
        replace_lost();
        answer = ask(newest(), "names", header);
      }
      reply(answer ? decode_response(answer->header.at("answer")) : CompilerResponse(Names()));
    } else if (std::holds_alternative<Complete>(request)) {
      answer_in_copy(header, Completions());
    } else if (std::holds_alternative<Inspect>(request)) {
      answer_in_copy(header, Inspection());
    }
  }

  /// Lets a copy answer, and ends it. `otherwise` is the answer if it crashes or takes too long.
  void answer_in_copy(const json& header, const CompilerResponse& otherwise) {
    State state = take_spare();
    try {
      state.send({{"do", "question"}, {"request", header}});
    } catch (const ChannelError&) {
      // It was killed, and sends no answer.
    }
    auto answer = is_ready(state.fd(), POLLIN, kQuestionLimit) ? state.receive() : std::nullopt;
    if (answer)
      send_message(channel_, {answer->header.at("answer"), {}});
    else
      reply(otherwise);
  }

  /// Returns the newest state and its copies. A change for which nothing is parsed is made in each of them.
  std::vector<State*> newest_and_spares() {
    std::vector<State*> states{&newest()};
    for (auto& spare : spares_) states.push_back(&spare);
    return states;
  }

  /// Returns nothing if the state's process has ended.
  std::optional<PipeMessage> ask(State& state, const char* what, const json& header) {
    try {
      state.send({{"do", what}, {"request", header}});
      return state.receive();
    } catch (const ChannelError&) {
      return std::nullopt;
    }
  }

  /// A state that has ended is replaced by a copy of one that has received the request.
  void ask_all(const char* what, const json& header) {
    for (State* state : newest_and_spares()) ask(*state, what, header);
    replace_lost();
  }

  void compile(const Compile& request, const json& header) {
    const auto begin = Clock::now();
    const auto deadline = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                      request.time_limit_s > 0 ? request.time_limit_s : 60));
    Attempt attempt;
    size_t killed = 0;
    for (;;) {
      State state = take_spare();
      Compiled failed;
      failed.cell = request.cell;
      int signal = SIGKILL;
      std::optional<PipeMessage> answer;
      try {
        state.send({{"do", "compile"}, {"request", header}, {"attempt", attempt}});
        answer = wait_compiled(state, deadline, request, failed, signal);
      } catch (const ChannelError&) {
        if (session_is_gone()) throw;
        failed.status = CompileStatus::crash;
        failed.diagnostics.push_back(
            {DiagnosticSeverity::error, 0, 0, "", "the process that was to compile the cell has ended"});
      }
      if (!answer && failed.status == CompileStatus::crash && signal == SIGKILL && killed++ < kSpares) {
        replace_lost();
        continue;  // it was killed from outside, perhaps before it received the cell: the cell is not the cause
      }
      if (!answer) {
        failed.ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
        failed.rendered = "error: " + failed.diagnostics.front().message + "\n";
        reply(failed);
        return;
      }
      if (answer->header.contains("again")) {
        attempt = answer->header["again"].get<Attempt>();
        continue;
      }
      json compiled = std::move(answer->header.at("answer"));
      compiled["ms"] = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      const bool ok = compiled.at("status").get<CompileStatus>() == CompileStatus::ok;
      send_message(channel_, {std::move(compiled), std::move(answer->frames)});
      if (ok) {
        candidate_.emplace(std::move(state));
        spares_.clear();  // of the state before
      }
      return;
    }
  }

  /// Waits for the result of a compilation. Returns nothing if it took too long, was cancelled, or the process died,
  /// which `failed` then describes; `signal` is the signal that ended the process.
  std::optional<PipeMessage> wait_compiled(State& state, Clock::time_point deadline, const Compile& request,
                                           Compiled& failed, int& signal) {
    const auto fail = [&](CompileStatus status, std::string message) {
      failed.status = status;
      failed.diagnostics.push_back({DiagnosticSeverity::error, 0, 0, "", std::move(message)});
      return std::nullopt;
    };
    for (;;) {
      pollfd fds[2] = {{state.fd(), POLLIN, 0}, {channel_, POLLIN, 0}};
      if (!wait_for({fds, waiting_.empty() ? 2u : 1u}, deadline)) {
        char text[160];
        std::snprintf(text, sizeof text,
                      "compiling the cell took longer than %g s and was stopped: an endless template? "
                      "(--compile-timeout sets the limit)",
                      request.time_limit_s);
        return fail(CompileStatus::timeout, text);
      }
      if (fds[0].revents != 0) {
        auto answer = state.receive();
        if (answer) return answer;
        const int status = state.wait_ended();
        signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == kOutOfMemory)
          return fail(CompileStatus::error,
                      "compiling the cell took more than " + std::to_string(options_.memory_limit_mb) +
                          " MB of memory and was stopped: an endless template? (--compile-memory sets the limit)");
        return fail(CompileStatus::crash,
                    "the compiler crashed on this cell" +
                        (signal != 0 ? std::string(" (") + ::strsignal(signal) + ")" : std::string()) +
                        "; nothing of it is kept, and the session goes on");
      }
      if (fds[1].revents != 0) {
        auto message = receive_message(channel_);
        if (!message) ::_exit(0);  // the session has ended, and so does its compiler
        const auto asked = decode_request(message->header);
        if (const auto* cancel = std::get_if<Cancel>(&asked)) {
          if (cancel->cell == request.cell || cancel->cell == 0)
            return fail(CompileStatus::cancelled, "compiling was cancelled");
        } else {
          waiting_.push_back(std::move(*message));
        }
      }
    }
  }

  const Options& options_;
  int channel_;
  std::optional<State> current_, candidate_;
  std::optional<State> practising_;  // a copy of the current state
  int practices_left_ = 0;
  std::deque<State> spares_;
  std::deque<PipeMessage> waiting_;
  bool session_gone_ = false;
};

}  // namespace

int supervise(const Options& options) {
  Supervisor supervisor(options);
  try {
    return supervisor.run();
  } catch (const ChannelError&) {
    return 0;  // the session has ended
  } catch (const std::exception& error) {
    try {
      send_message(options.channel_fd, {encode(CompilerResponse(CompilerFailed{error.what()})), {}});
    } catch (const ChannelError&) {
      // Nobody is left to receive it.
    }
    return 1;
  }
}

}  // namespace lockstep::compiler
