#include "shell/jupyter/kernel.h"

#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/read_json.h"
#include "protocol/runtime_folder.h"
#include "shell/jupyter/connection_file.h"
#include "shell/jupyter/display.h"
#include "shell/jupyter/displayed_data.h"
#include "shell/jupyter/input_history.h"
#include "shell/jupyter/questions.h"
#include "shell/jupyter/ran_cell.h"
#include "shell/jupyter/replies.h"
#include "shell/jupyter/sockets.h"
#include "shell/processes/session_records.h"
#include "shell/processes/signal_scope.h"
#include "shell/scripts/completeness.h"
#include "shell/session/session.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

/// The process that started the kernel; 0: it is not known. It may be no parent: a script in between, or it has ended
/// before the kernel came here.
pid_t frontend_process() {
  const char* text = std::getenv("JPY_PARENT_PID");  // Jupyter sets it
  return text ? std::max(static_cast<pid_t>(std::atoll(text)), 0) : 0;
}

class Kernel {
 public:
  Kernel(const KernelOptions& options, ConnectionFile& connection)
      : sockets_(connection),
        session_(as_kernel(options.session), *this_sink()),
        display_(session_.loop(), [this](std::string_view type,
                                         json content) { sockets_.publish(type, shown_parent_, std::move(content)); }),
        history_(HistoryFile(default_history_path())) {
    current_ = this;
    EventLoop& loop = session_.loop();
    loop.watch(sockets_.shell(), [this] { take_shell(); });
    loop.watch(sockets_.control(), [this] { take_control(); });
    loop.watch(sockets_.iopub(), [this] { sockets_.welcome_listeners(); });
    loop.watch(sockets_.input(), [this] { take_input(); });
    const pid_t frontend = frontend_process();
    if (frontend > 0) frontend_ = open_process(frontend);
    const bool has_ended = frontend > 0 && !frontend_ && errno == ESRCH;
    if (frontend_)
      loop.watch(frontend_.get(), [this] {
        session_.loop().forget(frontend_.get());
        leave();
      });
    if (has_ended) leave();
  }
  ~Kernel() {
    current_ = nullptr;
    session_.shutdown();  // while there is a display for what that reports
    EventLoop& loop = session_.loop();
    loop.forget(sockets_.shell());
    loop.forget(sockets_.control());
    loop.forget(sockets_.iopub());
    loop.forget(sockets_.input());
    if (frontend_) loop.forget(frontend_.get());
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  int run(bool start_now) {
    install_signals();
    sockets_.publish("status", json::object(), {{"execution_state", "starting"}});
    if (start_now) start();
    while (!leaving_) {
      try {
        session_.loop().run_until([this] { return leaving_ || interrupt_busy_ || !queue_.empty(); });
      } catch (const ChannelError& error) {
        display_.take(ErrorEvent{.cell = 0, .ranks = {}, .type = "session_error", .message = error.what()});
        continue;
      }
      if (leaving_) break;
      if (std::exchange(interrupt_busy_, false)) session_.interrupt_busy_ranks();
      if (queue_.empty()) continue;
      const Message request = std::move(queue_.front());
      queue_.pop_front();
      answer(request);
    }
    session_.run_on_preempt();
    const bool is_asked = !shutdown_.header.empty();
    if (is_asked) {
      const json content = {{"status", "ok"}, {"restart", flag_of(shutdown_.content, "restart", false)}};
      session_.shutdown();
      reply(shutdown_is_control_ ? sockets_.control() : sockets_.shell(), shutdown_, "shutdown_reply", content);
      sockets_.publish("shutdown_reply", shutdown_.header, content);
      sockets_.publish("status", shutdown_.header, {{"execution_state", "idle"}});
    }
    return is_asked || leaving_ < 0 ? 0 : 128 + leaving_;
  }

 private:
  static constexpr int kAsked = -1;  // of leaving_: by a request, or the frontend has ended

  /// The session is made before the display, which needs its loop; events come later.
  class Sink : public EventSink {
   public:
    explicit Sink(Kernel& kernel) : kernel_(kernel) {}
    void take(const Event& event) override { kernel_.take(event); }

   private:
    Kernel& kernel_;
  };
  EventSink* this_sink() {
    sink_ = std::make_unique<Sink>(*this);
    return sink_.get();
  }

  SessionOptions as_kernel(SessionOptions options) {
    options.interrupt_words = "Interrupt";
    options.shows_rich_values = true;
    options.early_output = [this](int rank, Stream stream, std::string_view bytes) {
      display_.take_early(rank, stream, bytes);
    };
    return options;
  }

  void take(const Event& event) {
    const auto* session = std::get_if<SessionEvent>(&event);
    if (starting_ && session)
      display_.set_ranks(session->ranks);  // no cell has asked for them
    else if (starting_ && shown_parent_.empty())
      start_messages_.push_back(event);
    else
      display_.take(event);
  }

  void start() {
    starting_ = true;
    try {
      session_.start();
    } catch (const std::exception&) {
      // The first cell starts them again, and reports what is wrong.
    }
    starting_ = false;
    start_messages_.clear();
    shown_parent_ = json::object();
  }

  // ---- Sockets ------------------------------------------------------------------------------------------------------

  static void report_refused(const std::string& what) {
    std::fprintf(stderr, "lockstep kernel: %s is left out\n", what.c_str());
  }

  void take_shell() {
    while (auto message = sockets_.receive(sockets_.shell(), report_refused)) {
      if (starting_ && message->type() == "kernel_info_request") {
        answer(*message);  // frontends wait for it; the ranks take a second
      } else if (message->type() == "shutdown_request") {
        take_shutdown(std::move(*message), /*is_control=*/false);
      } else {
        if (starting_ && shown_parent_.empty() && message->type() == "execute_request") show_start(*message);
        queue_.push_back(std::move(*message));
      }
    }
  }

  /// The first cell waits for the ranks: it shows what they wait for.
  void show_start(const Message& request) {
    shown_parent_ = request.header;
    publish_status(request, "busy");
    announced_ = request.header.value("msg_id", "");
    for (const Event& event : std::exchange(start_messages_, {})) display_.take(event);
  }

  /// Runs at any time, also while a cell runs.
  void take_control() {
    while (auto message = sockets_.receive(sockets_.control(), report_refused)) {
      const std::string type = message->type();
      if (type == "shutdown_request") {
        take_shutdown(std::move(*message), /*is_control=*/true);
        continue;
      }
      // A frontend would take "idle" for the end of the cell that runs.
      if (!answering_) publish_status(*message, "busy");
      json content;
      if (type == "interrupt_request") {
        interrupt();
        content = {{"status", "ok"}};
      } else if (type == "kernel_info_request") {
        content = kernel_info(session_.language());
      } else if (type == "debug_request") {
        // gdb 13 has no debug adapter.
        content = {{"type", "response"},
                   {"request_seq", number_of(message->content, "seq", 0)},
                   {"success", false},
                   {"command", protocol::text_at(message->content, "command")},
                   {"message", "this kernel has no debugger: docs/gdb.md shows gdb on a rank"}};
      } else {
        if (!answering_) publish_status(*message, "idle");
        continue;
      }
      reply(sockets_.control(), *message, reply_type(type), std::move(content));
      if (!answering_) publish_status(*message, "idle");
    }
  }

  void take_shutdown(Message message, bool is_control) {
    shutdown_ = std::move(message);
    shutdown_is_control_ = is_control;
    leave();
  }

  void leave() {
    if (leaving_ == 0) leaving_ = kAsked;
    session_.leave(/*signal=*/0);
  }

  void interrupt() {
    interrupt_session();
    if (!answering_) interrupt_busy_ = true;
  }

  /// A signal handler calls it, too. An interrupt of what waits for a line is none of what runs next.
  void interrupt_session() noexcept {
    if (!reading_) return session_.interrupt();
    input_is_over_ = true;
    session_.give_up_question();  // wakes the loop
  }

  void take_input() {
    while (const auto message = sockets_.receive(sockets_.input(), report_refused))
      if (message->type() == "input_reply") input_ = protocol::text_at(message->content, "value");
  }

  /// Asks the frontend of the cell for a line.
  std::optional<std::string> read_line(const Message& request, const std::string& prompt) {
    take_input();  // that nobody has waited for
    input_.reset();
    input_is_over_ = false;
    reading_ = true;
    reply(sockets_.input(), request, "input_request", {{"prompt", prompt}, {"password", false}});
    session_.loop().run_until([this] { return leaving_ || input_is_over_ || input_; });
    reading_ = false;
    return input_is_over_ ? std::nullopt : std::exchange(input_, std::nullopt);
  }

  static std::string reply_type(const std::string& type) { return type.substr(0, type.rfind("_request")) + "_reply"; }

  void reply(zmq::socket_t& socket, const Message& request, std::string_view type, json content,
             json metadata = json::object()) {
    Message message = sockets_.codec().make(type, request.header, std::move(content));
    message.identities = request.identities;
    message.metadata = std::move(metadata);
    sockets_.send(socket, message);
  }

  void publish_status(const Message& request, const char* state) {
    sockets_.publish("status", request.header, {{"execution_state", state}});
  }

  // ---- Requests of the shell channel --------------------------------------------------------------------------------

  void answer(const Message& request) {
    const std::string type = request.type();
    if (request.header.value("msg_id", "") != announced_) publish_status(request, "busy");
    const bool nested = std::exchange(answering_, true);
    bool stops = false;
    if (type == "execute_request") {
      stops = execute(request);
    } else if (type == "kernel_info_request") {
      reply(sockets_.shell(), request, "kernel_info_reply", kernel_info(session_.language()));
    } else if (type == "complete_request") {
      reply(sockets_.shell(), request, "complete_reply", complete(session_, request.content));
    } else if (type == "inspect_request") {
      reply(sockets_.shell(), request, "inspect_reply", inspect(session_, request.content));
    } else if (type == "is_complete_request") {
      reply(sockets_.shell(), request, "is_complete_reply", is_complete(session_, request.content));
    } else if (type == "history_request") {
      reply(sockets_.shell(), request, "history_reply", history_.answer(request.content));
    } else if (type == "comm_info_request") {
      reply(sockets_.shell(), request, "comm_info_reply", {{"status", "ok"}, {"comms", json::object()}});
    } else if (type == "comm_open") {
      // No target is known here; the other side learns that nobody will answer.
      sockets_.publish("comm_close", request.header,
                       {{"comm_id", protocol::text_at(request.content, "comm_id")}, {"data", json::object()}});
    }
    answering_ = nested;
    publish_status(request, "idle");
    if (stops) abort_queued();
  }

  /// Whether the cells that are queued are not to run.
  bool execute(const Message& request) {
    const json& content = request.content;
    const std::string code = protocol::text_at(content, "code");
    const bool is_silent = flag_of(content, "silent", false);
    const bool is_stored = !is_silent && flag_of(content, "store_history", true);
    const std::string started = sockets_.codec().make("", json::object(), nullptr).header["date"];
    const int64_t number = count_ + 1;
    if (is_stored) ++count_;
    shown_parent_ = request.header;
    if (!is_silent) sockets_.publish("execute_input", request.header, {{"code", code}, {"execution_count", number}});
    if (is_stored) history_.add(number, code);

    session_.options().read_line = nullptr;
    if (flag_of(content, "allow_stdin", false))
      session_.options().read_line = [this, &request](const std::string& prompt) { return read_line(request, prompt); };

    json payload = json::array();
    bool leaves = asks_to_leave(code);
    const RanCell run =
        leaves ? RanCell{} : run_cell(session_, display_, code, {is_silent, asks_for_help(code), number});
    leaves = leaves || run.leaves;
    if (!run.failed && !run.report.traceback.empty() && !is_silent)  // such as a rank that died after its part
      sockets_.publish("stream", request.header,
                       {{"name", "stderr"}, {"text", fmt::format("{}\n", fmt::join(run.report.traceback, "\n"))}});
    if (leaves) payload.push_back({{"source", "ask_exit"}, {"keepkernel", false}});
    if (!run.report.page.empty())
      payload.push_back({{"source", "page"}, {"data", {{"text/plain", run.report.page}}}, {"start", 0}});
    if (is_stored && run.report.result.is_object())
      history_.set_output(run.report.result.value("text/plain", std::string()));

    json answer = {{"status", "ok"}, {"execution_count", number}, {"payload", std::move(payload)}};
    if (run.failed) {
      const json error = {
          {"ename", run.report.error_name}, {"evalue", run.report.error_value}, {"traceback", run.report.traceback}};
      if (!is_silent) sockets_.publish("error", request.header, error);
      answer.update(error);
      answer["status"] = "error";
      answer["user_expressions"] = json::object();
    } else {
      answer["user_expressions"] = evaluate(content);
    }
    const bool stops = run.failed && flag_of(content, "stop_on_error", true);
    // What has come by now was sent by someone who did not know of the failure.
    if (stops) take_shell();
    to_abort_ = stops ? queue_.size() : 0;
    reply(sockets_.shell(), request, "execute_reply", answer,
          {{"started", started}, {"status", answer["status"]}, {"dependencies_met", true}});
    if (leaves && leaving_ == 0) leaving_ = kAsked;
    return stops;
  }

  /// Evaluates the user_expressions of an execute request.
  json evaluate(const json& content) {
    json results = json::object();
    const auto found = content.find("user_expressions");
    if (found == content.end() || !found->is_object()) return results;
    for (const auto& [name, expression] : found->items()) {
      if (!expression.is_string()) continue;
      const RanCell run = run_cell(session_, display_, expression.get<std::string>(),
                                   {.silent = true, .paged = false, .execution_count = count_ + 1});
      if (run.failed)
        results[name] = error_reply(run.report.error_name, run.report.error_value, run.report.traceback);
      else
        results[name] = {{"status", "ok"},
                         {"data", run.report.result.is_object() ? run.report.result : json::object()},
                         {"metadata", json::object()}};
    }
    return results;
  }

  /// Aborts the cells that a frontend had sent when one before them failed.
  void abort_queued() {
    std::deque<Message> rest;
    std::swap(rest, queue_);
    size_t left = std::exchange(to_abort_, 0);
    for (Message& message : rest) {
      const bool is_aborted = left > 0 && message.type() == "execute_request";
      left -= left > 0;
      if (!is_aborted) {
        queue_.push_back(std::move(message));
        continue;
      }
      publish_status(message, "busy");
      reply(sockets_.shell(), message, "execute_reply", {{"status", "aborted"}});
      publish_status(message, "idle");
    }
  }

  // ---- Signals ------------------------------------------------------------------------------------------------------

  static void install_signals() {
    handle_signal(SIGINT, [](int) {
      if (Kernel* kernel = current_) kernel->interrupt_session();
    });
    for (const int signal : kEndingSignals)
      handle_signal(signal, [](int number) {
        Kernel* kernel = current_;
        if (!kernel) return;
        if (kernel->leaving_ == 0) kernel->leaving_ = number;
        kernel->session_.leave(number);
      });
  }

  static inline std::atomic<Kernel*> current_{nullptr};

  Sockets sockets_;
  std::unique_ptr<Sink> sink_;
  Session session_;
  Display display_;
  InputHistory history_;
  Descriptor frontend_;

  std::deque<Message> queue_;  // of the shell channel
  json shown_parent_ = json::object();  // the header of the request whose outputs come now
  int64_t count_ = 0;  // cells that have been stored
  bool answering_ = false;  // a request of the shell channel
  bool interrupt_busy_ = false;  // ranks that are in a cell which was left
  bool starting_ = false;
  std::optional<std::string> input_;  // that the frontend has sent
  std::atomic<bool> reading_{false}, input_is_over_{false};  // a line for a cell; by an interrupt
  std::vector<Event> start_messages_;  // that no cell has shown yet
  std::string announced_;  // the request whose "busy" was sent ahead
  Message shutdown_;
  bool shutdown_is_control_ = true;
  size_t to_abort_ = 0;  // messages at the begin of the queue, whose cells do not run
  std::atomic<int> leaving_{0};  // kAsked, or a signal
};

}  // namespace

int run_kernel(const KernelOptions& options) {
  ConnectionFile connection;
  std::optional<OwnConnectionFile> own;
  if (options.connection_file.empty())
    own.emplace(connection);
  else
    connection = read_connection_file(options.connection_file);
  const std::string path = own ? own->path() : options.connection_file;
  const bool has_ports = connection.shell_port && connection.iopub_port && connection.stdin_port &&
                         connection.control_port && connection.hb_port;
  // Jupyter kills kernels that take long to end, and what those leave is nobody else's to remove.
  (void)clean_sessions(protocol::runtime_directories());
  Kernel kernel(options, connection);
  if (!has_ports) write_connection_file(path, connection);
  if (own)
    std::fprintf(stderr, "lockstep kernel: jupyter console --existing %s connects to it; Ctrl-\\ ends it\n",
                 std::filesystem::path(path).filename().c_str());
  return kernel.run(options.start_now);
}

}  // namespace lockstep::shell::jupyter
