#include "shell/jupyter/kernel_relay.h"

#include <fmt/format.h>
#include <sys/signalfd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/read_json.h"
#include "protocol/read_struct.h"
#include "shell/detached/attached_terminal.h"
#include "shell/jupyter/frontend_process.h"
#include "shell/jupyter/questions.h"
#include "shell/jupyter/replies.h"
#include "shell/jupyter/session_channels.h"
#include "shell/jupyter/sockets.h"
#include "shell/processes/deadline.h"
#include "shell/processes/signal_scope.h"
#include "shell/terminal/resumable.h"
#include "shell/text/text.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

/// Jupyter's manager interrupts a kernel right before it shuts it down or starts it again. The session's cell is to go on
/// then.
constexpr std::chrono::milliseconds kShutdownGap{50};

std::string notebook_name() {
  const std::string path = protocol::variable("JPY_SESSION_NAME");
  return path.empty() ? "a notebook" : "the notebook " + without_controls(path);
}

std::string code_of(const Message& request) {
  return request.type() == "execute_request" ? std::string(trimmed(protocol::text_at(request.content, "code"))) : "";
}

std::string id_of(const Message& request) { return protocol::text_at(request.header, "msg_id"); }

class KernelRelay {
 public:
  KernelRelay(const RelayOptions& options, ConnectionFile& connection)
      : id_(options.id), key_(connection.key), sockets_(connection), frontend_(frontend_process()) {
    sigset_t taken;
    ::sigemptyset(&taken);
    for (const int signal : kEndingSignals) ::sigaddset(&taken, signal);
    ::sigaddset(&taken, SIGINT);
    ::sigprocmask(SIG_BLOCK, &taken, nullptr);  // for good: the program ends next
    signals_ = Descriptor(::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));
    loop_.watch(signals_.get(), [this] { take_signals(); });
    if (frontend_) loop_.watch(frontend_.get(), [this] { exit_code_ = 0; });
    sockets_.watch(loop_, [this](Channel channel, const std::vector<std::string>& frames) {
      if (const auto request = sockets_.decode(frames)) take(channel, *request, frames);
    });
  }
  ~KernelRelay() { sockets_.forget(loop_); }
  KernelRelay(const KernelRelay&) = delete;
  KernelRelay& operator=(const KernelRelay&) = delete;

  /// Gets the session. Throws UsageError.
  void attach(bool takes_over) {
    const DetachableSession found = find_resumable(id_);
    Descriptor keeper = connect_to_keeper(found.path);
    auto [own, of_session] = make_socket_pair();
    const TerminalHello hello{.protocol = kProtocolVersion,
                              .asks = Asks::notebook,
                              .takes_over = takes_over,
                              .name = notebook_name(),
                              .type = {},
                              .size = {},
                              .key = key_};
    send_json(keeper.get(), Mail::hello, hello, of_session);
    answer_of(keeper.get());
    id_ = found.state.id;
    keeper_ = std::move(keeper);
    set_nonblocking(keeper_.get());
    loop_.watch(keeper_.get(), [this] { take_mail(); });
    stream_ = std::make_unique<SessionChannels>(std::move(own), key_);
    stream_->watch(loop_,
                   [this](Channel channel, const std::vector<std::string>& frames) { pass_back(channel, frames); });
    say("this kernel has the session " + id_);
  }

  /// The session can't be had, and each cell says why.
  void set_problem(const std::string& problem) {
    problem_ = problem;
    say(problem);
  }

  int run() {
    loop_.run_until([this] { return exit_code_.has_value(); });
    return *exit_code_;
  }

 private:
  static void say(const std::string& what) { std::fprintf(stderr, "lockstep kernel: %s\n", what.c_str()); }

  void take_signals() {
    signalfd_siginfo signal = {};
    while (read_all(signals_.get(), &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal)) {
      if (signal.ssi_signo != SIGINT)
        exit_code_ = 128 + static_cast<int>(signal.ssi_signo);
      else if (stream_)  // its reply is nobody's
        stream_->send(Channel::control, stream_->codec().make("interrupt_request", json::object(), json::object()));
    }
  }

  // ---- From frontends -----------------------------------------------------------------------------------------------

  void take(Channel channel, const Message& request, const std::vector<std::string>& frames) {
    if (!request.type().ends_with("_request")) {  // nobody waits for an answer: comm_open, input_reply
      if (stream_) stream_->send_frames(channel, frames);
      return;
    }
    if (request.type() == "shutdown_request") {
      sockets_.reply(channel, request, {{"status", "ok"}, {"restart", flag_of(request.content, "restart", false)}});
      exit_code_ = 0;
      return;
    }
    if (stream_) take_mail();  // no cell runs once somebody else has the session
    const std::string code = code_of(request);
    const bool takes_over = code == "%resume --take-over";
    if (!stream_ && !code.empty() && !flag_of(request.content, "silent", false)) try_again(takes_over);
    if (!stream_) return answer(channel, request, problem_, /*is_error=*/true);
    if (takes_over || code == "%resume")
      return answer(channel, request, "this notebook has the session " + id_, /*is_error=*/false);
    waiting_.emplace_back(channel, request);
    if (request.type() != "interrupt_request") return stream_->send_frames(channel, frames);
    pass_interrupt();
    interrupt_ = frames;
    interrupt_due_.set_after(kShutdownGap, [this] { pass_interrupt(); });
  }

  void pass_interrupt() {
    if (stream_ && !interrupt_.empty()) stream_->send_frames(Channel::control, interrupt_);
    interrupt_.clear();
  }

  void try_again(bool takes_over) {
    try {
      attach(takes_over);
    } catch (const std::exception& error) {
      problem_ = error.what();
    }
  }

  /// Answers what the session does not.
  void answer(Channel channel, const Message& request, const std::string& text, bool is_error) {
    const std::string type = request.type();
    const json error = {{"ename", "session_away"}, {"evalue", text}, {"traceback", {text}}};
    json content = error;
    content["status"] = "error";
    sockets_.publish_status(request, "busy");
    if (type == "kernel_info_request") {
      content = info_;
    } else if (type == "interrupt_request") {
      content = {{"status", "ok"}};
    } else if (type == "is_complete_request") {
      content = {{"status", "unknown"}};
    } else if (type == "execute_request") {
      if (is_error && !flag_of(request.content, "silent", false)) sockets_.publish("error", request.header, error);
      if (!is_error) {
        sockets_.publish("stream", request.header, {{"name", "stdout"}, {"text", text + "\n"}});
        content = {{"status", "ok"}, {"payload", json::array()}};
      }
      content["execution_count"] = count_;
      content["user_expressions"] = json::object();
    }
    sockets_.reply(channel, request, std::move(content));
    sockets_.publish_status(request, "idle");
  }

  // ---- From the session and its keeper ------------------------------------------------------------------------------

  void pass_back(Channel channel, const std::vector<std::string>& frames) {
    sockets_.send_frames(channel, frames);
    if (channel == Channel::input || (channel == Channel::iopub && frames.at(0) != "execute_input")) return;
    const auto message = sockets_.decode(frames);
    if (!message) return;
    const std::string request = protocol::text_at(message->parent_header, "msg_id");
    if (channel == Channel::iopub) {
      running_ = request;
      count_ = number_of(message->content, "execution_count", count_);
      return;
    }
    std::erase_if(waiting_, [&](const auto& each) { return id_of(each.second) == request; });
    if (message->type() == "kernel_info_reply") info_ = message->content;
  }

  void take_mail() {
    const Received mail = receive_mail(keeper_.get());
    if (mail.found == Reading::empty || (mail.found == Reading::bytes && mail.kind != Mail::leave)) return;
    const LeaveTerminal gone{.text = "the keeper of the session " + id_ +
                                     " is gone: the session ends, too; lockstep sessions show " + id_ + " shows it",
                             .exit_code = 1};
    lose_session(mail.found == Reading::bytes ? protocol::read_struct<LeaveTerminal>(mail.body).value_or(gone) : gone);
  }

  /// Somebody has taken it over, `%detach` has left it, or it has ended.
  void lose_session(const LeaveTerminal& last) {
    stream_->take();  // the last replies
    stream_.reset();
    interrupt_.clear();
    loop_.forget(keeper_.get());
    keeper_.reset();
    set_problem(!last.text.empty()
                    ? last.text
                    : fmt::format("the session {} has ended (exit code {}); lockstep sessions show {} shows "
                                  "it, lockstep run --journal {} runs its cells again",
                                  id_, last.exit_code, id_, id_));
    for (const auto& [channel, request] : std::exchange(waiting_, {}))
      answer(channel, request, problem_, /*is_error=*/!last.is_detached || id_of(request) != running_);
    if (last.text.empty() && last.exit_code == 0) exit_code_ = 0;  // `exit` in a cell
  }

  std::string id_;
  const std::string key_;
  EventLoop loop_;
  std::vector<std::string> interrupt_;  // that is held, and was not followed by the end of this kernel yet
  Deadline interrupt_due_{loop_};
  Sockets sockets_;
  const Descriptor frontend_;
  Descriptor signals_, keeper_;
  std::unique_ptr<SessionChannels> stream_;  // null: this kernel does not have the session
  std::string problem_;  // why not
  std::vector<std::pair<Channel, Message>> waiting_;  // requests that the session is to answer
  std::string running_;  // that of the last cell that has begun
  json info_ = kernel_info(Language::cpp);
  int64_t count_ = 0;  // of the last cell
  std::optional<int> exit_code_;
};

}  // namespace

int run_kernel_relay(const RelayOptions& options) {
  KernelConnection connection(options.connection_file);
  KernelRelay relay(options, connection.file());
  try {
    relay.attach(options.takes_over);
  } catch (const std::exception& error) {
    if (options.connection_file.empty()) throw;
    relay.set_problem(error.what());
  }
  connection.announce();
  return relay.run();
}

}  // namespace lockstep::shell::jupyter
