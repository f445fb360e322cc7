// A session: N workers, a compiler, and the cells that ran. Front ends (terminal, `run`, a notebook) hand it text and
// draw its events. completion.h and inspection.h tell them what may stand in a cell, and what a name is.
//
// One thread owns it: every public function is called on that thread, and events come on it. While a cell runs, run()
// serves the ranks and returns when the cell is over. A front end that waits for a person calls serve() with the
// descriptor it waits for.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "protocol/descriptor.h"
#include "shell/processes/event_loop.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {

struct MagicUse;
struct ParsedCell;
struct RunningCell;

class Session : public SessionCore {
 public:
  /// Starts nothing yet: workers start with start() or the first cell.
  Session(SessionOptions options, EventSink& events);
  ~Session();  // ends everything that it started

  /// Returns the ranks of a cell that names none, for people: "ranks 0-1", or that these ranks, or all, are dead.
  std::string target_words() const;
  /// Sets the number of the next cell. Front ends that number cells themselves call it (a notebook counts those of
  /// magics alone, too).
  void set_next_cell(int64_t number);

  /// Runs one cell as typed: magics, C++ or a mix. Never throws for what the user wrote: it becomes an ErrorEvent and a
  /// status. Throws StartError when the session could not be started for it. Status `waiting`: the prompt is back,
  /// ranks are stuck.
  CellOutcome run(const std::string& text, const std::string& title = "");

  /// Serves the ranks until `fd` is readable, or the time is over: for front ends that wait for typing.
  void serve(int fd, std::optional<std::chrono::milliseconds> limit = std::nullopt);

  /// Lets the user type at a front end while a cell runs: run() calls `typed` when the cell's ranks have begun, and
  /// whenever `fd` is readable. An `fd` of -1 ends this.
  void watch_typing(int fd, std::function<void()> typed);
  /// Does what works while a cell runs (%hang, %stack, %abort, …) at once. Returns false where the line is no such
  /// magic, or nothing runs.
  bool run_now(const std::string& line);

  /// Interrupts, at a prompt, the ranks that are still in a cell, and returns when they are back, or after 2 s. Returns
  /// false where none is in one.
  bool interrupt_busy_ranks();

  using SessionCore::interrupt;
  /// Asks the running cell to stop; a second time makes run() offer to end ranks that did not come back, a third ends
  /// them. Async-signal-safe, as are the next functions that are noexcept.
  void interrupt() noexcept { send(Asked::interrupt); }
  /// Notes that the program is to end, by this signal (0: by none). Interrupts, and ends ranks that do not come back
  /// within seconds, unasked. Signals that come while ranks save do not disturb them.
  void leave(int signal) noexcept;
  /// Where leave() was given one of protocol::kPreemptionSignals: shows who ends the session and how much time is left,
  /// and has the ranks run what cells have registered with on_preempt(). A front end calls it before it ends.
  void run_on_preempt();
  /// Gives up a question, asked at a prompt, about a text that waits for the compiler.
  void give_up_question() noexcept { send(Asked::give_up_question); }

 private:
  enum class Asked : char { interrupt = 1, leave, preempt, give_up_question };
  void send(Asked what) noexcept;
  void take(Asked what);
  void take_preemption();
  void say_preempted();
  RankSet ranks_that_save();
  void save(const RankSet& ranks);

  CellOutcome run_cell(const std::string& text, const std::string& title);
  void run_parts(RunningCell& cell, CellOutcome& outcome);
  void run_parts_between(RunningCell& cell, const ParsedCell& parsed, CellOutcome& outcome);
  void run_after(RunningCell& cell);
  CellOutcome run_line_magic(const MagicUse& use);
  void check_magic(const std::string& name, const char* signs) const;
  bool is_name(const std::string& name);

  Pipe signals_ = make_pipe();
  std::atomic<int> preempted_by_{0};  // the signal
  std::optional<EventLoop::Clock::time_point> preempted_until_;  // ranks may save what they hold; set when people know
  int typing_fd_ = -1;  // what is typed while a cell runs
};

}  // namespace lockstep::shell
