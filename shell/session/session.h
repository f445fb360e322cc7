// A session: N workers, a compiler, and the cells that ran. Front ends (terminal, `run`, a notebook) hand it text and
// draw its events.
//
// One thread owns it: every public function is called on that thread, and events come on it. While a cell runs, run()
// serves the ranks and returns when the cell is over. A front end that waits for a person calls serve() with the
// descriptor it waits for.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"
#include "protocol/rank_set.h"
#include "shell/cells/cell_result.h"
#include "shell/events/event.h"
#include "shell/processes/session_options.h"
#include "shell/scripts/completeness.h"
#include "shell/scripts/script.h"
#include "shell/session/inspection.h"

namespace lockstep::shell {

class EventLoop;  // shell/processes/event_loop.h
struct SessionCore;  // magics work on it: shell/session/session_core.h

/// How a cell ended, for exit codes and for `run` to decide whether to go on.
struct CellOutcome {
  int64_t cell = 0;  // 0 for a cell of magics alone, and for markdown
  CellStatus status = CellStatus::ok;
  std::vector<Finding> findings;
  bool exit_requested = false;  // a magic or Ctrl-D asked to leave
  std::optional<BeforeInterrupt> before_interrupt;  // where it was interrupted
};

class Session {
 public:
  /// Starts nothing yet: workers start with start() or the first cell.
  Session(SessionOptions options, EventSink& events);
  ~Session();  // ends everything that it started

  const SessionOptions& options() const;
  SessionOptions& options();  // before start()
  void start();  // idempotent. Throws StartError, UsageError
  void shutdown();  // ends workers; the next cell starts them afresh
  bool started() const;
  int world_size() const;  // 0 before start()
  RankSet live_ranks() const;
  RankSet away_ranks() const;  // of a Python job, that run instead of waiting at a prompt
  RankSet target_ranks() const;  // of a cell that names none: for prompts; empty before start()
  /// The same for people: "ranks 0-1"; says so where those ranks, or all, are dead.
  std::string target_words() const;
  /// The text of the newest cell with this number, or of the last one; nothing where there is none.
  std::optional<std::string> text_of_cell(std::optional<int64_t> number) const;
  int64_t next_cell() const;  // the number that the next cell with C++ in it gets
  /// For front ends that number cells themselves (a notebook counts those of magics alone, too).
  void set_next_cell(int64_t number);

  /// Runs one cell as typed: magics, C++ or a mix. Never throws for what the user wrote: it becomes an ErrorEvent and a
  /// status. Throws StartError when the session could not be started for it. Status `waiting`: the prompt is back,
  /// ranks are stuck.
  CellOutcome run(const std::string& text, const std::string& title = "");

  /// Serves the ranks until `fd` is readable, or the time is over. For front ends that wait for typing.
  void serve(int fd, std::optional<std::chrono::milliseconds> limit = std::nullopt);

  /// What serves the ranks, while a cell runs and in between: a front end may watch sockets and descriptors of its own
  /// with it. Between cells it has to run it (or call serve()).
  EventLoop& loop();

  /// For front ends that are typed at: `typed` is called while run() is at a cell and `fd` is readable. -1: not any
  /// more.
  void watch_typing(int fd, std::function<void()> typed);
  /// Does what works while a cell runs (%hang, %stack, %abort, …) at once. False where the line is no such magic, or
  /// nothing runs.
  bool run_now(const std::string& line);

  /// At a prompt: interrupts the ranks that are still in a cell, and returns when they are back, or after 2 s. False
  /// where none is in one.
  bool interrupt_busy_ranks();

  /// From a signal handler: asks the running cell to stop; a second time makes run() offer to end ranks that did not
  /// come back, a third ends them.
  void interrupt() noexcept;
  /// From a signal handler: the program is to end. As interrupt(), and ranks that do not come back within seconds are
  /// ended, unasked.
  void leave() noexcept;
  /// From a signal handler, at a prompt: complete() or inspect() that waits for the compiler gives up.
  void give_up_question() noexcept;

  Completeness is_complete(const std::string& text);
  /// What may stand at byte `offset` of a cell: C++, magics, options, rank sets, paths (session/completion.h).
  protocol::Completions complete(const std::string& text, int64_t offset);
  /// The overloads of the call whose arguments stand there; none before start().
  std::vector<protocol::Signature> signatures(const std::string& text, int64_t offset);
  /// What an expression or a magic is, and what stands at an offset (session/inspection.h).
  Description inspect(const std::string& expression, bool with_source = false);
  Description inspect_at(const std::string& text, int64_t offset, bool with_source = false);

 private:
  std::unique_ptr<SessionCore> core_;
};

}  // namespace lockstep::shell
