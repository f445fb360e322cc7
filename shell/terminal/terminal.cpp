#include "shell/terminal/terminal.h"

#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "protocol/error.h"
#include "protocol/version.h"
#include "shell/processes/session_plan.h"
#include "shell/processes/signal_scope.h"
#include "shell/scripts/completeness.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/completion.h"
#include "shell/session/outcome.h"
#include "shell/terminal/edit_line_reader.h"
#include "shell/terminal/foreground_program.h"
#include "shell/terminal/keeper_link.h"
#include "shell/terminal/plain_line_reader.h"
#include "shell/terminal/renderer.h"
#include "shell/terminal/typing_scopes.h"
#include "shell/text/text.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

constexpr std::chrono::seconds kDetachLimit{5};
constexpr unsigned kLostLimit_s = 60;  // to end in order, once the terminal is lost

class Terminal : private EventSink {
 public:
  /// `can_edit` says that the terminal can move its cursor.
  Terminal(const SessionOptions& options, bool is_interactive, bool can_edit, Descriptor keeper = {},
           MakeNotebook make_notebook = nullptr)
      : interactive_(is_interactive),
        output_(STDOUT_FILENO, "the output", [this](size_t dropped) { renderer_.drop_output(dropped); }),
        renderer_(detect_screen(STDOUT_FILENO), [this](std::string_view bytes) { draw(bytes); }),
        session_(as_terminal(options, can_edit), static_cast<EventSink&>(*this)),
        make_notebook_(std::move(make_notebook)) {
    renderer_.set_live(interactive_);
    renderer_.set_prompt(interactive_ && can_edit);
    const LineReaderServices services{
        [this](int fd) { session_.serve(fd); },
        [this](const std::string& text, bool is_pasted) { return completeness(text, is_pasted); },
        [this](const std::string& text, int64_t offset) { return complete(text, offset); },
        [this](const std::string& text, int64_t offset) { return signatures(text, offset); }};
    if (interactive_ && can_edit) {
      auto reader = std::make_unique<EditLineReader>(services, HistoryFile(default_history_path()));
      editing_ = reader.get();
      reader_ = std::move(reader);
    } else {
      std::function<void(const std::string&)> write_prompt;
      if (interactive_) write_prompt = [this](const std::string& text) { output_.write(text); };
      reader_ = std::make_unique<PlainLineReader>(STDIN_FILENO, services, write_prompt);
    }
    if (!options.job) plan_session(options);  // throws where they ask for what can't be
    if (keeper) open_keeper(std::move(keeper));
    current_ = this;
  }
  ~Terminal() override { current_ = nullptr; }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// The numbers of cells go on where an earlier prompt has ended.
  void set_next_cell(int64_t number) { session_.set_next_cell(number); }
  int64_t next_cell() const { return session_.next_cell(); }

  int run(bool start_now, const std::vector<ScriptCell>& first = {}) {
    install_signals();
    try {
      return run_cells(start_now, first);
    } catch (const StartError&) {
      if (leaving_) return 128 + leaving_;
      if (interrupted_) return kExitInterrupted;
      throw;
    }
  }

 private:
  static constexpr int kLeave = -1;

  int run_cells(bool start_now, const std::vector<ScriptCell>& first) {
    if (interactive_ && session_.next_cell() == 1)
      draw(fmt::format(
          "Lockstep {}: {}.\n", kVersion,
          session_.options().ends_at_continue
              ? "Python on every rank of the job. continue (Ctrl-D) lets it train on, detach for good; "
                "%help lists the magics"
          : is_job() ? "Python on every rank of a job. continue lets it train on, Ctrl-D does that and leaves; "
                       "%help lists the magics"
          : session_.options().python ? "Python with torch on every rank. %help lists the magics, Ctrl-D leaves"
                                      : "C++ with LibTorch on every rank. %help lists the magics, Ctrl-D leaves"));
    if (keeper_)
      draw(fmt::format("A lost terminal and %detach leave this session running; lockstep --resume {} comes back.\n",
                       session_.id()));
    if (start_now) {
      const std::optional<NoEcho> no_echo = quiet_terminal();
      session_.start();
    }
    int exit_code = 0;
    for (const ScriptCell& cell : first) {
      if (leaving_ || interrupted_) break;
      renderer_.begin_cell(cell.number, {}, cell.title, cell.text);
      if (cell.number > 0) session_.set_next_cell(cell.number);
      run_cell(cell.text, cell.title);
      const auto state = session_.options().replay ? session_.replay_state() : std::nullopt;
      if (state && (state->over || state->departed)) break;
    }
    int64_t last = 0;  // cells that are typed now are others
    for (const ScriptCell& cell : first) last = std::max(last, cell.number);
    if (last > 0) session_.set_next_cell(last + 1);
    while (!leaving_) {
      if (notebook_) {
        if (serve_notebook()) break;
        continue;
      }
      const LineReader::Input input = read();
      if (std::exchange(gives_way_, false)) {
        type_again(input.text);
        continue;
      }
      if (input.end == LineReader::End::end_of_input) break;
      const bool is_blank = input.text.find_first_not_of(" \t\n") == std::string::npos;
      if (input.end == LineReader::End::cancelled) {
        if (!interactive_) break;
        if (is_blank && !leaving_) session_.interrupt_busy_ranks();
        continue;
      }
      if (is_blank) continue;
      if (interactive_) reader_->remember(input.text);
      if (asks_to_leave(input.text)) break;
      if (editing_ && take_edit(input.text)) continue;
      const int code = run_cell(input.text);
      show_pages();
      if (code != 0 && exit_code == 0) exit_code = code;
      if (code == kLeave || output_.closed() || (interrupted_ && !interactive_)) break;
    }
    session_.run_on_preempt();
    if (leaving_) return 128 + leaving_;
    if (interactive_) return 0;
    if (exit_code == kLeave) exit_code = 0;
    if (exit_code == 0 && output_.lost()) return kExitFailed;
    return exit_code == 0 && interrupted_ ? kExitInterrupted : exit_code;
  }

  void take(const Event& event) override {
    if (const std::shared_ptr<Notebook> notebook = notebook_) notebook->take(event);
    const auto* page = std::get_if<PageEvent>(&event);
    const auto* message = std::get_if<MessageEvent>(&event);
    if (notebook_ && (page || (message && message->is_help))) return;  // for who has asked
    if (page && editing_)
      pages_.push_back(*page);
    else if (message && message->is_help && editing_)
      pages_.push_back({message->cell, message->text});
    else
      renderer_.take(event);
  }

  /// Shows what %page and %help have found, after their cell: in a pager where it is taller than the screen.
  void show_pages() {
    const size_t rows = static_cast<size_t>(std::max(2, detect_screen(STDOUT_FILENO).height)) - 2;
    for (const PageEvent& page : std::exchange(pages_, {}))
      if (notebook_ || lines_of(page.text).size() <= rows ||
          !show_in_pager(without_controls(page.text, /*keeps_colours=*/true)))
        renderer_.take(page);
  }

  /// Takes %edit [CELL], alone in its cell.
  bool take_edit(const std::string& text) {
    const std::vector<std::string_view> lines = lines_of(text);
    if (lines.size() != 1 || !lines[0].starts_with("%edit")) return false;
    const std::string words(lines[0].substr(std::string_view("%edit").size()));
    const size_t begin = words.find_first_not_of(' ');
    if (begin == 0 || words.ends_with('?')) return false;
    std::optional<int64_t> number;
    try {
      if (begin != std::string::npos) number = parse_count(words.substr(begin), "the number of a cell");
      const std::optional<std::string> cell = session_.history().text_of(number);
      if (!cell && number) throw UsageError("there is no cell " + std::to_string(*number) + "; %history lists them");
      editing_->edit_first(cell.value_or(""));
    } catch (const UsageError& error) {
      renderer_.take(ErrorEvent{.cell = 0, .ranks = {}, .type = "usage_error", .message = error.what()});
    }
    return true;
  }

  std::optional<NoEcho> quiet_terminal() const {
    if (!interactive_) return std::nullopt;
    return std::optional<NoEcho>(std::in_place);
  }

  bool is_job() const { return session_.options().job.has_value(); }

  /// Returns what the session will be: %dist_init may have changed what the command line said.
  RankSet planned_ranks() const { return RankSet::all(plan_session(session_.options()).world_size); }

  SessionOptions as_terminal(SessionOptions options, bool can_edit) {
    options.reports_activity = can_edit;  // its rows are drawn in place
    if (interactive_) options.read_line = [this](const std::string& prompt) { return read_line(prompt); };
    return options;
  }

  std::string prompt(const Screen& screen) const {
    if (asked_) return *asked_;
    const std::string label = session_.started() ? session_.target_words() : planned_ranks().words();
    return prompt_text(session_.next_cell(), label, screen);
  }

  LineReader::Input read() {
    const Screen screen = detect_screen(STDOUT_FILENO);
    renderer_.set_screen(screen);
    renderer_.flush();
    renderer_.set_live(false);
    const std::string text = prompt(screen);
    at_prompt_ = true;
    output_.resume();
    // From here on a signal wakes the reader. One that came before, behind the end of the cell, has only left its mark.
    const bool is_over = leaving_ || (interrupted_ && !interactive_);
    const LineReader::Input input =
        is_over ? LineReader::Input{.end = LineReader::End::cancelled} : reader_->read(text);
    at_prompt_ = false;
    renderer_.set_live(interactive_);
    return input;
  }

  /// Reads a line for the cell that runs.
  std::optional<std::string> read_line(const std::string& prompt) {
    session_.watch_typing(-1, {});
    asked_ = prompt;
    const LineReader::Input input = read();
    asked_.reset();
    session_.watch_typing(STDIN_FILENO, [this] { take_typed(); });
    return input.end == LineReader::End::cell ? std::optional(input.text) : std::nullopt;
  }

  int run_cell(const std::string& text, const std::string& title = "") {
    const std::optional<NoEcho> no_echo = quiet_terminal();
    if (interactive_) interrupted_ = false;  // otherwise Ctrl-C ends the session, also between two cells
    if (interactive_) session_.watch_typing(STDIN_FILENO, [this] { take_typed(); });
    try {
      const CellOutcome outcome = session_.run(text, title);
      return outcome.exit_requested ? kLeave : judge({}, outcome, {}).exit_code;
    } catch (const StartError& error) {
      if (!interactive_) throw;
      renderer_.take(ErrorEvent{.cell = 0, .ranks = {}, .type = "session_error", .message = error.what()});
      return 3;
    }
  }

  /// Takes lines that were typed behind a cell, in one go with it or while it runs: %hang, %stack, %abort and their like
  /// are done now, anything else is kept for the prompt.
  void take_typed() {
    if (at_prompt_) return;  // the cell asks for a line
    std::string typed = reader_->take_ahead();
    if (is_ready(STDIN_FILENO, POLLIN)) {
      const Reading found = read_some(STDIN_FILENO, typed);  // whole lines: the terminal is not in raw mode
      if (found == Reading::end || found == Reading::failed) {  // Ctrl-D, or the terminal is gone
        reader_->end_ahead();
        session_.watch_typing(-1, {});
      }
    }
    // What came while keys were read one by one ends its lines otherwise; a pasted block is left whole.
    if (editing_ && typed.find('\x1b') == std::string::npos) std::ranges::replace(typed, '\r', '\n');
    for (std::string_view line : lines_of(typed)) {
      const bool whole = line.data() + line.size() < typed.data() + typed.size();
      if (whole && keeper_ && trimmed(line) == "%detach")
        keeper_->detach_now();
      else if (!whole || !session_.run_now(std::string(line)))
        reader_->type_ahead(std::string(line) + (whole ? "\n" : ""));
    }
  }

  /// A cell magic waits for its cell, which on a terminal ends with an empty line, as in IPython.
  Completeness completeness(const std::string& text, bool is_pasted) {
    if (asked_) return {TextStatus::complete, 0};
    const CellMagics magics = cell_magics_of(text);
    if (magics == CellMagics::alone || (magics == CellMagics::with_body && interactive_ && !is_pasted))
      return {TextStatus::incomplete, shell::completeness(text).indent};
    return completeness_of_cell(session_, text);
  }

  protocol::Completions complete(const std::string& text, int64_t offset) {
    if (asked_) return {offset, offset, {}};
    const Asking asking(asking_);
    try {
      return complete_cell(session_, text, offset);
    } catch (const std::exception&) {  // the compiler has just ended: running the cell reports that
      return {offset, offset, {}};
    }
  }

  std::vector<protocol::Signature> signatures(const std::string& text, int64_t offset) {
    if (asked_) return {};
    const Asking asking(asking_);
    try {
      return signatures_in_cell(session_, text, offset);
    } catch (const std::exception&) {  // as above
      return {};
    }
  }

  void draw(std::string_view bytes) {
    if (reader_) reader_->hide();
    output_.write(bytes, renderer_.draws_output());
    if (reader_ && at_prompt_) reader_->set_prompt(prompt(detect_screen(STDOUT_FILENO)));  // a rank may have died
    if (reader_) reader_->show();
    if (output_.closed()) session_.leave(SIGPIPE);
  }

  // ---- A detachable session -------------------------------------------------------------------------------------------

  void open_keeper(Descriptor keeper) {
    keeper_ = std::make_unique<KeeperLink>(
        std::move(keeper), session_,
        KeeperLink::Listener{
            .attached =
                [this](const NewTerminal& seen, Descriptor notebook) {
                  notebook ? open_notebook(seen, std::move(notebook)) : show_again(seen);
                },
            .lost =
                [this] {
                  if (const auto notebook = std::exchange(notebook_, nullptr)) notebook->let_go();
                },
            .watched = [this](const std::string& text) { renderer_.take(MessageEvent{0, note(text), nullptr}); },
            .over = [this](const std::string& text) { session_.show(MessageEvent{0, note(text), nullptr}); }});
    session_.options().detach = [this](std::optional<int64_t> seconds) {
      keeper_->detach(seconds);
      const std::shared_ptr<Notebook> left = notebook_;  // its kernel says then until when the session waits
      const auto until = EventLoop::Clock::now() + kDetachLimit;
      if (left && !session_.loop().run_until([&] { return notebook_ != left; }, until))
        throw UsageError("the keeper of this session does not answer: has it been stopped?");
    };
  }

  /// A notebook comes instead of a person. What is typed and has not run waits for the next one.
  void open_notebook(const NewTerminal& seen, Descriptor socket) {
    notebook_ = make_notebook_({.session = session_,
                                .is_over = [this] { return leaving_ || output_.closed(); },
                                .unseen = [this, seen](const Screen& screen) { return keeper_->unseen(seen, screen); },
                                .began = [this](const std::string& code) { show_notebook_cell(code); }},
                               std::move(socket), seen.key);
    output_.write(seen.mark);
    if (!at_prompt_) return;
    gives_way_ = !asked_;
    interrupt();
  }

  /// Returns whether the notebook has ended the session.
  bool serve_notebook() {
    const std::shared_ptr<Notebook> notebook = notebook_;  // it may be let go, and another one come, while a cell runs
    const std::optional<NoEcho> no_echo = quiet_terminal();
    session_.watch_typing(STDIN_FILENO, [this] { take_typed(); });  // a terminal may come while its cell runs
    serving_ = notebook.get();
    const bool ends = notebook->serve();
    serving_ = nullptr;
    if (notebook_ == notebook) notebook_.reset();
    return ends;
  }

  void show_notebook_cell(const std::string& code) {
    const Screen screen = detect_screen(STDOUT_FILENO);
    renderer_.set_screen(screen);
    renderer_.flush();
    draw(prompt(screen) + without_controls(code) + "\n");
    reader_->remember(code);
  }

  void type_again(const std::string& text) {
    if (text.empty()) return;
    reader_->type_ahead(editing_ ? "\033[200~" + text + "\033[201~" : text + "\n");  // as one block that is pasted
  }

  static std::string note(const std::string& text) {
    return std::string(signs(detect_screen(STDOUT_FILENO)).note) + " " + text;
  }

  /// Draws for a terminal that has come what it has not seen, and the prompt with what is typed there.
  void show_again(const NewTerminal& terminal) {
    ::setenv("TERM", terminal.type.c_str(), 1);
    renderer_.flush();  // for nobody: it is in the journal
    if (reader_) reader_->hide();
    const Screen screen = detect_screen(STDOUT_FILENO);
    renderer_.set_screen(screen);
    output_.write(terminal.mark);
    output_.write(keeper_->unseen(terminal, screen));
    if (editing_ && at_prompt_) editing_->resumed();  // it marks what is pasted there, too
    if (reader_) reader_->show();
    renderer_.draw_bottom_again();
  }

  void install_signals() {
    handle_signal(SIGINT, [](int) {
      Terminal* terminal = current_;
      if (!terminal) return;
      terminal->interrupted_ = true;
      if (terminal->interactive_ && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp())
        ::tcflush(STDIN_FILENO, TCIFLUSH);  // what was typed before: NOFLSH has taken that from the kernel
      terminal->interrupt();
      if (Notebook* notebook = terminal->serving_)
        notebook->interrupt();
      else if (!terminal->at_prompt_)
        terminal->session_.interrupt();
    });
    if (editing_) {
      handle_signal(SIGWINCH, [](int) {
        if (Terminal* terminal = current_; terminal && terminal->at_prompt_) terminal->editing_->resized();
      });
      handle_signal(SIGCONT, [](int) {
        if (Terminal* terminal = current_; terminal && terminal->at_prompt_) terminal->editing_->resumed();
      });
    }
    for (const int signal : kEndingSignals)
      handle_signal(signal, [](int number) {
        Terminal* terminal = current_;
        if (!terminal) return;
        terminal->leaving_ = number;
        ::alarm(number == SIGHUP ? kLostLimit_s : 0);  // SIGALRM then ends this process, whatever it waits for
        terminal->interrupt();
        terminal->session_.leave(number);
      });
  }

  void interrupt() noexcept {
    if (at_prompt_) {
      reader_->interrupt();
      if (leaving_) output_.interrupt();
      if (asking_) session_.give_up_question();
    } else {
      output_.interrupt();
    }
  }

  static inline std::atomic<Terminal*> current_{nullptr};

  const bool interactive_;
  std::unique_ptr<LineReader> reader_;
  EditLineReader* editing_ = nullptr;  // reader_, where it edits
  std::vector<PageEvent> pages_;  // of the cell that runs
  std::optional<std::string> asked_;  // the prompt of a line that a cell asks for
  TextOutput output_;
  Renderer renderer_;
  Session session_;
  std::unique_ptr<KeeperLink> keeper_;  // of a detachable session
  const MakeNotebook make_notebook_;
  std::shared_ptr<Notebook> notebook_;  // that is there instead of a person
  std::atomic<Notebook*> serving_{nullptr};
  bool gives_way_ = false;  // the prompt, to a notebook
  std::atomic<bool> at_prompt_{false};
  std::atomic<bool> asking_{false};  // the prompt waits for the compiler
  std::atomic<int> leaving_{0};  // the signal that asked to
  std::atomic<bool> interrupted_{false};  // by Ctrl-C, in this cell or at the start
};

}  // namespace

int64_t run_job_prompt(const SessionOptions& options, int64_t first_cell) {
  std::setlocale(LC_CTYPE, "");
  Terminal terminal(options, /*is_interactive=*/true, detect_screen(STDOUT_FILENO).terminal);
  terminal.set_next_cell(first_cell);
  terminal.run(/*start_now=*/true);
  return terminal.next_cell();
}

int run_terminal(const SessionOptions& options, bool start_now, Descriptor keeper, const std::vector<ScriptCell>& first,
                 MakeNotebook make_notebook) {
  std::setlocale(LC_CTYPE, "");
  const Screen screen = detect_screen(STDOUT_FILENO);
  const bool is_interactive = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
  Terminal terminal(options, is_interactive, screen.terminal, std::move(keeper), std::move(make_notebook));
  return terminal.run(start_now, first);
}

}  // namespace lockstep::shell
