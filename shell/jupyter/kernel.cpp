#include "shell/jupyter/kernel.h"

#include <fmt/format.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <deque>
#include <optional>
#include <utility>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/read_json.h"
#include "protocol/runtime_folder.h"
#include "shell/jupyter/connection_file.h"
#include "shell/jupyter/display.h"
#include "shell/jupyter/displayed_data.h"
#include "shell/jupyter/frontend_process.h"
#include "shell/jupyter/input_history.h"
#include "shell/jupyter/questions.h"
#include "shell/jupyter/ran_cell.h"
#include "shell/jupyter/replies.h"
#include "shell/jupyter/session_channels.h"
#include "shell/jupyter/sockets.h"
#include "shell/processes/session_records.h"
#include "shell/processes/signal_scope.h"
#include "shell/scripts/completeness.h"
#include "shell/session/session.h"

namespace lockstep::shell::jupyter {
namespace {

using nlohmann::json;

class Kernel final : public Notebook {
 public:
  /// With a session of its own.
  Kernel(const KernelOptions& options, ConnectionFile& connection)
      : channels_(std::make_unique<Sockets>(connection)),
        own_(std::make_unique<Session>(as_kernel(options.session), *this_sink())),
        session_(*own_) {
    current_ = this;
    watch();
    if (frontend_)
      session_.loop().watch(frontend_.get(), [this] {
        session_.loop().forget(frontend_.get());
        leave();
      });
  }
  /// Of the session of a terminal.
  Kernel(const NotebookServices& services, std::unique_ptr<Channels> channels)
      : channels_(std::move(channels)), host_(services), session_(services.session) {
    SessionOptions& options = session_.options();
    before_ = {.interrupt_words = options.interrupt_words, .shows_rich_values = options.shows_rich_values};
    options.interrupt_words = "Interrupt";
    options.shows_rich_values = true;
    watch();
  }
  ~Kernel() override {
    if (host_) {
      let_go();
      return;
    }
    current_ = nullptr;
    session_.shutdown();  // while there is a display for what that reports
    channels_->forget(session_.loop());
    if (frontend_) session_.loop().forget(frontend_.get());
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  int run(bool start_now) {
    install_signals();
    channels_->publish("status", json::object(), {{"execution_state", "starting"}});
    if (start_now) start();
    answer_all();
    session_.run_on_preempt();
    const bool is_asked = !shutdown_.header.empty();
    if (is_asked) {
      const json content = {{"status", "ok"}, {"restart", flag_of(shutdown_.content, "restart", false)}};
      session_.shutdown();
      channels_->reply(shutdown_is_control_ ? Channel::control : Channel::shell, shutdown_, content);
      channels_->publish("shutdown_reply", shutdown_.header, content);
      channels_->publish("status", shutdown_.header, {{"execution_state", "idle"}});
    }
    return is_asked || leaving_ < 0 ? 0 : 128 + leaving_;
  }

  bool serve() override {
    is_served_ = true;
    count_ = session_.next_cell() - 1;
    if (!shown_parent_.empty()) end_meanwhile();
    answer_all();
    session_.set_next_cell(count_ + 1);
    return leaving_ && !is_gone_;
  }

  void let_go() override {
    if (std::exchange(is_gone_, true)) return;
    channels_->forget(session_.loop());
    session_.options().interrupt_words = before_.interrupt_words;
    session_.options().shows_rich_values = before_.shows_rich_values;
    session_.options().early_output = nullptr;
  }

  void interrupt() noexcept override { interrupt_session(); }

 private:
  static constexpr int kAsked = -1;  // of leaving_: by a request, or the frontend has ended

  void watch() {
    channels_->watch(session_.loop(), [this](Channel channel, const std::vector<std::string>& frames) {
      std::optional<Message> message = channels_->decode(frames);
      if (!message) return;
      if (channel == Channel::shell) take_shell(std::move(*message));
      if (channel == Channel::control) take_control(std::move(*message));
      if (channel == Channel::input && message->type() == "input_reply")
        input_ = protocol::text_at(message->content, "value");
    });
  }

  bool is_over() const { return leaving_ != 0 || is_gone_ || (host_ && host_->is_over()); }

  /// Answers requests until it is over.
  void answer_all() {
    while (!is_over()) {
      try {
        session_.loop().run_until([this] { return is_over() || interrupt_busy_ || !queue_.empty(); });
      } catch (const ChannelError& error) {
        display_.take(ErrorEvent{.cell = 0, .ranks = {}, .type = "session_error", .message = error.what()});
        continue;
      }
      if (is_over()) break;
      if (std::exchange(interrupt_busy_, false)) session_.interrupt_busy_ranks();
      if (queue_.empty()) continue;
      const Message request = std::move(queue_.front());
      queue_.pop_front();
      answer(request);
    }
  }

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
    return options;
  }

  void take(const Event& event) override {
    if (host_ && shown_parent_.empty()) return;  // its first cell shows it
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

  void take_shell(Message message) {
    if (is_waiting() && message.type() == "kernel_info_request") {
      answer(message);  // frontends wait for it; the ranks take a second
    } else if (message.type() == "shutdown_request") {
      take_shutdown(std::move(message), /*is_control=*/false);
    } else {
      const bool is_first = shown_parent_.empty() && message.type() == "execute_request";
      if (is_waiting() && is_first && !flag_of(message.content, "silent", false)) show_start(message);
      queue_.push_back(std::move(message));
    }
  }

  bool is_waiting() const { return starting_ || (host_ && !is_served_); }

  /// The first cell waits for the ranks, or for the cell of the terminal: it shows what they wait for.
  void show_start(const Message& request) {
    shown_parent_ = request.header;
    channels_->publish_status(request, "busy");
    announced_ = request.header.value("msg_id", "");
    for (const Event& event : std::exchange(start_messages_, {})) display_.take(event);
    if (!host_) return;
    show_unseen();
    display_.begin({.execution_count = session_.next_cell()});
  }

  /// Shows what has come while no one was there. What comes from here on is the display's.
  void show_unseen() {
    if (std::exchange(was_shown_, true)) return;
    if (session_.started()) display_.set_ranks(RankSet::all(session_.world_size()));
    const Screen screen{.terminal = false, .colour = false, .unicode = true, .width = kPageColumns};
    if (const std::string text = host_->unseen(screen); !text.empty())
      channels_->publish("stream", shown_parent_, {{"name", "stdout"}, {"text", text}});
  }

  /// The cell of the terminal is over.
  void end_meanwhile() {
    const Display::Report report = display_.end();
    if (!report.result.is_null())
      channels_->publish("display_data", shown_parent_, {{"data", report.result}, {"metadata", json::object()}});
    show_traceback(report);
  }

  void show_traceback(const Display::Report& report) {
    if (!report.traceback.empty())
      channels_->publish("stream", shown_parent_,
                         {{"name", "stderr"}, {"text", fmt::format("{}\n", fmt::join(report.traceback, "\n"))}});
  }

  /// Runs at any time, also while a cell runs.
  void take_control(Message message) {
    const std::string type = message.type();
    if (type == "shutdown_request") return take_shutdown(std::move(message), /*is_control=*/true);
    // A frontend would take "idle" for the end of the cell that runs.
    if (!answering_) channels_->publish_status(message, "busy");
    json content;
    if (type == "interrupt_request") {
      interrupt_all();
      content = {{"status", "ok"}};
    } else if (type == "kernel_info_request") {
      content = kernel_info(session_.language());
    } else if (type == "debug_request") {
      // gdb 13 has no debug adapter.
      content = {{"type", "response"},
                 {"request_seq", number_of(message.content, "seq", 0)},
                 {"success", false},
                 {"command", protocol::text_at(message.content, "command")},
                 {"message", "this kernel has no debugger: docs/gdb.md shows gdb on a rank"}};
    }
    if (!content.is_null()) channels_->reply(Channel::control, message, std::move(content));
    if (!answering_) channels_->publish_status(message, "idle");
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

  void interrupt_all() {
    interrupt_session();
    if (!answering_) interrupt_busy_ = true;
  }

  /// A signal handler calls it, too. An interrupt of what waits for a line is none of what runs next.
  void interrupt_session() noexcept {
    if (!reading_) return session_.interrupt();
    input_is_over_ = true;
    session_.give_up_question();  // wakes the loop
  }

  /// Asks the frontend of the cell for a line.
  std::optional<std::string> read_line(const Message& request, const std::string& prompt) {
    channels_->take();
    input_.reset();  // that nobody has waited for
    input_is_over_ = false;
    reading_ = true;
    channels_->reply(Channel::input, request, {{"prompt", prompt}, {"password", false}});
    session_.loop().run_until([this] { return is_over() || input_is_over_ || input_; });
    reading_ = false;
    return input_is_over_ ? std::nullopt : std::exchange(input_, std::nullopt);
  }

  // ---- Requests of the shell channel --------------------------------------------------------------------------------

  void answer(const Message& request) {
    const std::string type = request.type();
    if (request.header.value("msg_id", "") != announced_) channels_->publish_status(request, "busy");
    const bool nested = std::exchange(answering_, true);
    bool stops = false;
    if (type == "execute_request") {
      stops = execute(request);
    } else if (type == "kernel_info_request") {
      channels_->reply(Channel::shell, request, kernel_info(session_.language()));
    } else if (type == "complete_request") {
      channels_->reply(Channel::shell, request, complete(session_, request.content));
    } else if (type == "inspect_request") {
      channels_->reply(Channel::shell, request, inspect(session_, request.content));
    } else if (type == "is_complete_request") {
      channels_->reply(Channel::shell, request, is_complete(session_, request.content));
    } else if (type == "history_request") {
      channels_->reply(Channel::shell, request, history_.answer(request.content));
    } else if (type == "comm_info_request") {
      channels_->reply(Channel::shell, request, {{"status", "ok"}, {"comms", json::object()}});
    } else if (type == "comm_open") {
      // No target is known here; the other side learns that nobody will answer.
      channels_->publish("comm_close", request.header,
                         {{"comm_id", protocol::text_at(request.content, "comm_id")}, {"data", json::object()}});
    }
    answering_ = nested;
    channels_->publish_status(request, "idle");
    if (stops) abort_queued();
  }

  /// Whether the cells that are queued are not to run.
  bool execute(const Message& request) {
    const json& content = request.content;
    const std::string code = protocol::text_at(content, "code");
    const bool is_silent = flag_of(content, "silent", false);
    const bool is_stored = !is_silent && flag_of(content, "store_history", true);
    const std::string started = channels_->codec().make("", json::object(), nullptr).header["date"];
    const int64_t number = count_ + 1;
    if (is_stored) ++count_;
    shown_parent_ = request.header;
    if (!is_silent) channels_->publish("execute_input", request.header, {{"code", code}, {"execution_count", number}});
    if (is_stored) history_.add(number, code, /*is_kept=*/!host_);
    if (host_ && !is_silent) {
      show_unseen();
      host_->began(code);
    }

    const auto read_line_before = std::exchange(session_.options().read_line, nullptr);
    session_.options().early_output = [this](int rank, Stream stream, std::string_view bytes) {
      display_.take_early(rank, stream, bytes);
    };
    if (flag_of(content, "allow_stdin", false))
      session_.options().read_line = [this, &request](const std::string& prompt) { return read_line(request, prompt); };

    json payload = json::array();
    bool leaves = asks_to_leave(code);
    const RanCell run =
        leaves ? RanCell{} : run_cell(session_, display_, code, {is_silent, asks_for_help(code), number});
    leaves = leaves || run.leaves;
    if (!run.failed && !is_silent) show_traceback(run.report);  // such as of a rank that died after its part
    if (leaves) payload.push_back({{"source", "ask_exit"}, {"keepkernel", false}});
    if (!run.report.page.empty())
      payload.push_back({{"source", "page"}, {"data", {{"text/plain", run.report.page}}}, {"start", 0}});
    if (is_stored && run.report.result.is_object())
      history_.set_output(run.report.result.value("text/plain", std::string()));

    json answer = {{"status", "ok"}, {"execution_count", number}, {"payload", std::move(payload)}};
    if (run.failed) {
      const json error = {
          {"ename", run.report.error_name}, {"evalue", run.report.error_value}, {"traceback", run.report.traceback}};
      if (!is_silent) channels_->publish("error", request.header, error);
      answer.update(error);
      answer["status"] = "error";
      answer["user_expressions"] = json::object();
    } else {
      answer["user_expressions"] = evaluate(content);
    }
    session_.options().read_line = read_line_before;
    const bool stops = run.failed && flag_of(content, "stop_on_error", true);
    // What has come by now was sent by someone who did not know of the failure.
    if (stops) channels_->take();
    to_abort_ = stops ? queue_.size() : 0;
    channels_->reply(Channel::shell, request, answer,
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
      channels_->publish_status(message, "busy");
      channels_->reply(Channel::shell, message, {{"status", "aborted"}});
      channels_->publish_status(message, "idle");
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

  const std::unique_ptr<Channels> channels_;
  std::unique_ptr<Sink> sink_;
  const std::unique_ptr<Session> own_;
  const std::optional<NotebookServices> host_;  // the terminal whose session it is
  Session& session_;
  Display display_{session_.loop(), [this](std::string_view type, json content) {
                     channels_->publish(type, shown_parent_, std::move(content));
                   }};
  InputHistory history_{HistoryFile(default_history_path())};
  const Descriptor frontend_ = host_ ? Descriptor() : frontend_process();
  SessionOptions before_;  // of the terminal
  bool is_served_ = false, was_shown_ = false;
  bool is_gone_ = false;  // its connection was ended

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

std::shared_ptr<Notebook> open_notebook(const NotebookServices& services, Descriptor socket, const std::string& key) {
  return std::make_shared<Kernel>(services, std::make_unique<SessionChannels>(std::move(socket), key));
}

int run_kernel(const KernelOptions& options) {
  KernelConnection connection(options.connection_file);
  // Jupyter kills kernels that take long to end, and what those leave is nobody else's to remove.
  (void)clean_sessions(protocol::runtime_directories());
  Kernel kernel(options, connection.file());
  connection.announce();
  return kernel.run(options.start_now);
}

}  // namespace lockstep::shell::jupyter
