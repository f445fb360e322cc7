// Runs cells on the ranks of a session: compile → load everywhere → run → settle, with interrupts, time limits, hangs and deaths on the
// way. What a cell is at is a CellRun, who waits for whom is found out by a HangReporter; this class sends the messages and keeps the
// deadlines.
//
// In a terminal a cell whose last ranks wait for ranks that will not come stays open, and run() returns: `waiting`. Such ranks are busy; cells
// on the others may still join them.
#pragma once
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "shell/cells/cell_findings.h"
#include "shell/cells/cell_request.h"
#include "shell/cells/cell_result.h"
#include "shell/cells/cell_run.h"
#include "shell/cells/hang_reporter.h"
#include "shell/cells/repeatable_objects.h"
#include "shell/events/output_merger.h"
#include "shell/processes/compiler_service.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/session_directory.h"
#include "shell/processes/session_options.h"
#include "shell/processes/worker_group.h"

namespace lockstep::shell {

class CellRunner {
 public:
  CellRunner(EventLoop& loop, CompilerService& compiler, WorkerGroup& workers, SessionDirectory& directory,
             const SessionOptions& options, std::function<void(Event)> emit);
  ~CellRunner();

  /// Compiles and runs. Tells by events what goes wrong. `over` is asked after each run of the object, with the time that each
  /// rank took: true ends (one run: leave it out). All ranks run equally often.
  using OverAfter = std::function<bool(const std::map<int, double>& run_ms)>;
  CodeResult run(const CellRequest& request, const OverAfter& over = nullptr);
  CodeResult run_builtin(const std::string& name, const nlohmann::json& arguments, const RankSet& ranks,
                         int64_t number);

  /// Ranks that sit in a cell that has been left open, and which cell.
  RankSet busy() const;
  int64_t cell_of(int rank) const;  // 0: none
  std::string wait_of(int rank) const;  // "all_reduce #12 of cell 7, line 3"; empty: it waits for nobody

  std::map<int, nlohmann::json> query(const RankSet& ranks, const std::string& what, const nlohmann::json& arguments,
                                      std::chrono::milliseconds limit);
  void interrupt(const RankSet& ranks);
  /// Waits for those that sit in a collective.
  void abort(const RankSet& ranks, const std::string& reason);
  /// What every rank does now, seen from each open cell; one picture where there is none.
  std::vector<inspect::HangPicture> hang_pictures();
  /// Ctrl-C, from the loop: stops what run() is at, but for a compile, which its caller cancels. A second one offers to end the ranks that did not come back, a third ends them.
  void user_interrupt();
  /// The program is to end: stops what run() is at. Ranks that do not come back within seconds are ended.
  void leave();

  /// From the worker group.
  void message(FromWorker& from);
  void last_output(int rank, Stream stream, std::string bytes);
  void died(int rank, const protocol::CellError& error);
  void store_ended(const std::string& how);

  const std::vector<Finding>& findings() const { return findings_.all(); }  // since the last clear
  /// A new cell, which may have several parts, begins: forgets findings and what came before an interrupt.
  void begin_cell();
  /// What had gone wrong when the user interrupted the cell; nothing where that has not happened since begin_cell().
  const std::optional<BeforeInterrupt>& before_interrupt() const { return before_interrupt_; }
  /// In a terminal: says what the ranks that have died since the last time mean for the next cell, and what can be done.
  void advise_after_deaths();

 private:
  using Clock = EventLoop::Clock;
  struct Open {  // a cell that is not over
    CellRun run;
    CellEvent event;  // what is known of it before its end
    std::optional<CellStatus> not_loaded;  // how it ended where nothing of it has run
    bool settles = false;  // the compiler waits to hear how it ended
    RankSet reported_dead;  // whose deaths have been reported, while the others run on
    bool lacks_store = false;  // it has been told that it makes no new group
  };
  using OpenCell = std::list<Open>::iterator;
  class Preparation {  // of a cell: from its ranks being connected to one another until it is open
   public:
    Preparation(CellRunner& runner, const RankSet& ranks, int64_t number);
    ~Preparation();
    Preparation(const Preparation&) = delete;
    Preparation& operator=(const Preparation&) = delete;

   private:
    CellRunner& runner_;
  };

  OpenCell open(const CellRequest& request, bool has_objects);
  std::optional<OpenCell> open_compiled(const CellRequest& request, int64_t id, CodeResult& result, CellObject& object);
  std::optional<OpenCell> open_again(const CellRequest& request, CellObject& object);
  bool compile(const CellRequest& request, int64_t id, CodeResult& result, FromCompiler& answer);
  bool load(OpenCell cell, const protocol::Compiled& compiled, std::vector<std::string>& frames);
  void report_load(const CellRun& run);
  bool is_stopped(CodeResult& result);
  void note_interrupt();
  void serve_cell(OpenCell cell);
  void settle(Open& cell, bool loaded);
  CodeResult close(OpenCell cell);
  void emit_errors(const Open& cell);
  void report_deaths();
  void note_end(const CellRun& run);
  void regroup_if_needed();
  RankSet not_regrouped(const RankSet& ranks) const;

  void loaded(int rank, const protocol::Loaded& message);
  void done(int rank, const protocol::Done& message);
  void waiting(int rank, const protocol::Waiting& message);
  void end_new_groups();
  void left(int rank, CellStatus how);
  void rank_is_back(OpenCell cell);
  void add_finding(Finding finding, int64_t number, int from);
  void start_limits(OpenCell cell);
  void cell_timeout();
  void end_what_stays();
  void report_patience();
  void arm_merger();
  void cancel_timers();
  OpenCell cell_with(int rank);
  int64_t number_of(int64_t id) const;
  void say(const std::string& text);

  EventLoop& loop_;
  CompilerService& compiler_;
  WorkerGroup& workers_;
  SessionDirectory& directory_;
  const SessionOptions& options_;
  std::function<void(Event)> emit_;
  OutputMerger merger_;
  CellFindings findings_;

  std::list<Open> cells_;  // open ones, oldest first
  std::optional<OpenCell> current_;  // what run() serves
  bool compiling_ = false;
  RankSet preparing_, lost_;  // ranks of the cell that is not open yet, and those of them that have died since
  int64_t preparing_number_ = 0;
  bool interrupted_ = false;  // by the user, since run() began
  bool leaving_ = false;  // the program is to end: nothing is begun any more
  std::optional<BeforeInterrupt> before_interrupt_;
  int interrupts_ = 0;
  int64_t last_id_ = 0;
  std::map<int64_t, int64_t> numbers_;  // id → number, where they differ
  RepeatableObjects repeatable_;
  std::vector<std::pair<int64_t, int64_t>>
      repeats_;  // cells that ran the code of an earlier one, of which the compiler has not heard

  RankSet new_deaths_;  // since advise_after_deaths()
  bool needs_regroup_ = false;
  int64_t generation_ = 0;
  std::map<int, protocol::Regrouped> regrouped_;
  bool reported_no_regroup_ = false;  // that there will be none without the store
  RankSet in_new_group_;  // ranks that have waited in one for a while

  int64_t last_query_ = 0;
  std::map<int64_t, std::map<int, nlohmann::json>> replies_;
  std::map<int, int64_t> owed_credit_;
  std::map<int, int64_t> last_cell_;  // id of the one that ended last on each rank

  std::optional<EventLoop::Timer> merger_timer_, cell_timer_, patience_timer_, deaths_timer_;
  int timeout_stage_ = 0;
  HangReporter hangs_;
};

}  // namespace lockstep::shell
