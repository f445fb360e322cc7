// Runs cells on the ranks of a session, one at a time:
//
//   idle ─→ prepared ─→ served ─→ closed          prepared: connected, compiled, loaded (cell_preparation.h)
//              │           └────→ left open        served: the runner waits until its ranks have left it (cell_run.h)
//              └─→ stopped
//
// In a terminal a cell whose last ranks wait for ranks that will not come stays open, and run() returns: `waiting`.
// Such ranks are busy; cells on the others may still join them. The cell is closed when its last rank comes back.
//
// The parts: open_cells.h (which cells are not over), cell_preparation.h, cell_stopper.h (interrupts and limits),
// group_connections.h, hang_reporter.h (who waits for whom), call_comparison.h (calls of ranks on different machines),
// cell_output.h and cell_findings.h (what the ranks write and find), death_reports.h, rank_queries.h. This class connects
// them with one another and with the messages of the ranks. All of it is on the session's thread.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shell/cells/call_comparison.h"
#include "shell/cells/cell_findings.h"
#include "shell/cells/cell_output.h"
#include "shell/cells/cell_preparation.h"
#include "shell/cells/cell_progress.h"
#include "shell/cells/cell_request.h"
#include "shell/cells/cell_result.h"
#include "shell/cells/cell_services.h"
#include "shell/cells/cell_stopper.h"
#include "shell/cells/death_reports.h"
#include "shell/cells/group_connections.h"
#include "shell/cells/hang_reporter.h"
#include "shell/cells/open_cells.h"
#include "shell/cells/past_cells.h"
#include "shell/cells/rank_queries.h"
#include "shell/cells/rank_replay.h"

namespace lockstep::shell {

class CellRunner {
 public:
  CellRunner(EventLoop& loop, ObjectSource& compiler, RankGroup& workers, SessionDirectory& directory,
             const SessionOptions& options, std::function<void(Event)> emit);
  ~CellRunner();

  /// `call` is called whenever a cell has been sent to its ranks, before it is waited for.
  void on_serve(std::function<void()> call) { on_serve_ = std::move(call); }

  /// Gives loops over progress() of open cells their end, before the session ends.
  void end_open_loops();

  /// Compiles and runs. Errors are emitted as events. `over` is asked after each run of the object, with the time in ms
  /// that each rank took, and returns whether to end (without it there is one run). All ranks run equally often.
  using OverAfter = std::function<bool(const std::map<int, double>& run_ms)>;
  CodeResult run(const CellRequest& request, const OverAfter& over = nullptr);
  CodeResult run_builtin(const protocol::Function& function, const RankSet& ranks, int64_t number);

  /// Starts another process in the place of a dead rank: it gets `configuration`, and loads and runs what the rank had.
  /// A new rank loads and runs what all live ranks have; its cells find the numbers of the default group with all of
  /// `together`, the ranks that start with it. The groups of all ranks are connected with it in connect(). No rank is in a cell. Returns what the process has run; nothing where it has died again,
  /// which has been reported, or is_interrupted(). Throws StartError.
  std::optional<RestartedRank> restart(int rank, const RankSet& together, const protocol::Configure& configuration);
  /// The session, which had `size` ranks, has more: they are dead, and restart() gives them what all live ranks have.
  void session_grows(int size);
  /// Connects the groups of all live ranks, where they are not. Returns whether they are connected.
  bool connect();
  /// Makes the ranks that live the default group, without the others, and connects them. Returns whether they are
  /// connected. No rank is in a cell.
  bool continue_without_the_dead();
  /// Returns the ranks of the default group.
  const RankSet& default_ranks() const { return connections_.default_ranks(); }
  /// Whether the user has interrupted what was begun last.
  bool is_interrupted() const { return stopper_.is_interrupted(); }

  /// Return the ranks that are in a cell which has been left open, and that cell.
  RankSet busy() const { return cells_.busy(); }
  int64_t cell_of(int rank) const { return cells_.cell_of(rank); }  // 0: none
  std::string wait_of(int rank) const {
    return cells_.wait_of(rank);
  }  // "all_reduce #12 of cell 7, line 3"; empty: none

  std::map<int, protocol::Answer> query(const RankSet& ranks, const protocol::Question& question,
                                        std::chrono::milliseconds limit) {
    return queries_.ask(ranks, question, limit);
  }
  /// Interrupts the cells of `ranks`; does not wait.
  void interrupt(const RankSet& ranks) { stopper_.interrupt(ranks); }
  /// Frees `ranks` from collectives, and waits for those that are in one.
  void abort(const RankSet& ranks, const std::string& reason);
  /// Returns what every rank does now: a picture for each open cell, or one where none is open.
  std::vector<inspect::HangPicture> hang_pictures();
  /// Stops, at Ctrl-C, what run() does, except for a compile, which the caller cancels. A second one offers to end the
  /// ranks that did not come back, a third ends them. Called from the loop.
  void user_interrupt();
  /// Stops what run() does, since the program ends. Ranks that do not come back within seconds are ended.
  void leave();
  /// Gives these ranks more time, or less, after leave().
  void give_time(EventLoop::Clock::duration time) { stopper_.give_time(time); }
  /// Lets cells run again after leave(): the program has something to do before it ends.
  void stay() { stopper_.stay(); }

  /// The rank group calls these.
  void message(FromWorker& from);
  void last_output(int rank, Stream stream, std::string bytes);
  void died(int rank, const protocol::CellError& error);
  void has_left(int rank);
  void calls(const std::vector<dist::NewCall>& calls) { comparison_.take(calls); }
  void store_ended(const std::string& how) { connections_.store_ended(how); }

  /// Returns what the cell that is prepared or served does, from the collective logs; nothing where there is none.
  std::optional<ActivityEvent> activity() const;

  const std::vector<Finding>& findings() const { return findings_.all(); }  // since begin_cell()
  /// Begins a new cell, which may have several parts: forgets findings and what came before an interrupt.
  void begin_cell();
  /// Returns what had gone wrong when the user interrupted; nothing where that has not happened since begin_cell().
  const std::optional<BeforeInterrupt>& before_interrupt() const { return before_interrupt_; }
  /// Shows in a terminal what the deaths since the last call mean for the next cell.
  void advise_after_deaths() { deaths_.advise(); }

 private:
  bool is_idle() const;
  int64_t number_at_hand() const;
  std::optional<RestartedRank> start_again(int rank, const RankSet& together, const protocol::Configure& configuration);
  void connect_ranks();
  void serve(OpenCell& cell);
  CodeResult end_serving(OpenCell& cell, std::string compiler_messages);
  static CodeResult result_of(const OpenCell& cell);
  CodeResult close(OpenCell& cell);
  void emit_errors(const OpenCell& cell);
  void compare_progress(const CellRun& run);
  void note_interrupt();

  void handle(int rank, FromWorker& from, protocol::Output& message);
  void handle(int rank, FromWorker& from, protocol::Value& message);
  void handle(int rank, FromWorker& from, protocol::Progress& message);
  void handle(int rank, FromWorker& from, protocol::FindingMessage& message);
  void handle(int rank, FromWorker& from, protocol::Loaded& message);
  void handle(int rank, FromWorker& from, protocol::Done& message);
  void handle(int rank, FromWorker& from, protocol::Waiting& message);
  void handle(int rank, FromWorker& from, protocol::LongWait& message);
  void handle(int rank, FromWorker& from, protocol::Regrouped& message);
  void handle(int rank, FromWorker& from, protocol::Reply& message);
  // Messages of the start and the end of a rank, which the rank group handles.
  void handle(int, FromWorker&, protocol::Hello&) {}
  void handle(int, FromWorker&, protocol::Ready&) {}
  void handle(int, FromWorker&, protocol::NotReady&) {}
  void handle(int, FromWorker&, protocol::Dying&) {}

  std::string note_last_step(int rank);
  void left(int rank, CellStatus how);
  void close_if_over(OpenCell& cell);
  void add_finding(Finding finding, int64_t number, int from);

  const CellServices services_;
  std::function<void()> on_serve_;
  OpenCells cells_;
  CellProgress progress_;
  CellOutput output_;
  CellFindings findings_;
  CellStopper stopper_;
  GroupConnections connections_;
  PastCells past_;
  RankSet new_ranks_;  // that have not been back yet
  std::unique_ptr<RankReplay> replay_;  // while a rank is started again
  std::string end_of_replay_;  // the session ends that rank: how, in words
  CellPreparation preparation_;
  DeathReports deaths_;
  RankQueries queries_;
  HangReporter hangs_;
  CallComparison comparison_;
  std::optional<BeforeInterrupt> before_interrupt_;
  EventLoop::Clock::time_point served_since_;
};

}  // namespace lockstep::shell
