// The ranks and the compiler on which the cells of a session run, with what magics read, set and ask for. Session
// (shell/session/session.h) reads cells and runs them with it.
//
// Everything here happens on the session's thread. Functions that wait (run_code, query, ask) serve the ranks
// meanwhile.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "inspectors/hang/picture.h"
#include "protocol/compiler_messages.h"
#include "protocol/worker_messages.h"
#include "shell/cells/cell_result.h"
#include "shell/cells/restarted_rank.h"
#include "shell/events/event.h"
#include "shell/jobs/job_folder.h"
#include "shell/journal/journal.h"
#include "shell/processes/launcher.h"
#include "shell/processes/rank_place.h"
#include "shell/processes/session_options.h"
#include "shell/scripts/magic.h"
#include "shell/scripts/script.h"
#include "shell/session/activity.h"
#include "shell/session/history.h"

namespace lockstep::shell {

/// Holds what magics have set, for the cells that follow.
struct SessionSettings {
  std::optional<RankSet> target;  // %rank: their ranks; none: by distributed
  bool distributed = true;  // %dist_mode: cells without a target go to all ranks, or to rank 0
  bool quiet = false;  // %quiet
  std::map<std::string, std::string> checks;  // %%check: C++ by name
  /// C++ that runs on a cell's ranks before each cell with code, asked for then; none where it is empty. It ends with
  /// the workers, and when it does not compile.
  std::function<std::string(const RankSet&)> before_each_cell;
  std::vector<ScriptCell> queued;  // %load: Session::run() runs them after the cell at hand, up to the first that fails
};

/// A rank, as %dist_status shows it.
struct RankDescription {
  bool away = false;  // of a job: it goes on with its program
  bool dead = false;
  int64_t pid = 0;
  std::string host, device;
  int threads = 0;
  int64_t cell = 0;  // that it is in; 0: none
  std::string waits_in;  // "all_reduce #3 of cell 7, line 4", for ranks that will not come
};

class EventLoop;
class JobGroup;

class SessionCore {
 public:
  SessionCore(const SessionCore&) = delete;
  SessionCore& operator=(const SessionCore&) = delete;

  // ---- The session ---------------------------------------------------------------------------------------------------
  const std::string& id() const { return id_; }
  const SessionOptions& options() const { return options_; }
  SessionOptions& options() { return options_; }  // before start()
  void start(bool is_asked = false);  // idempotent; throws StartError, UsageError. `is_asked`: by %dist_init
  void shutdown();  // ends workers and compiler; names are gone, numbers go on. The next cell starts them afresh
  bool started() const;
  PromptKind kind() const {
    return options_.job ? PromptKind::job : options_.python ? PromptKind::python : PromptKind::cpp;
  }
  MagicForm line_form() const { return options_.has_python_ranks() ? MagicForm::job_line : MagicForm::line; }
  int world_size() const;  // 0 before start()
  RankSet live_ranks() const;
  /// Returns ranks of a Python job that run instead of waiting at a prompt, or have finished; empty in a session.
  RankSet departed_ranks() const;
  RankSet dead_ranks() const;
  /// Returns the ranks for which C++ is compiled: those that live, or in a replay those of the recorded session.
  RankSet cell_ranks() const { return options_.replay ? RankSet::all(world_size()) : live_ranks(); }
  /// Returns the ranks of a cell that names none: those of %rank, or all or rank 0 (%dist_mode), without dead ones.
  /// Starts the session if needed.
  RankSet target_ranks();
  /// Parses a rank set of this session (started if needed). Throws UsageError.
  RankSet parse_ranks(std::string_view spec);
  int64_t next_cell() const;  // the number that the next cell with C++ in it gets
  /// Returns the language of cells that do not name another one.
  Language language() const { return options_.has_python_ranks() ? Language::python : Language::cpp; }
  Language language_of_cell() const;  // that runs
  int64_t current_number() const;  // of the cell that runs; 0 where no C++ of it has run
  /// Returns the loop that serves the ranks, while a cell runs and in between. A front end may watch sockets and
  /// descriptors of its own with it. Between cells the front end has to run it (or call Session::serve()).
  EventLoop& loop();
  /// Returns the ranks, where they are Python and have started; null in a session of C++.
  JobGroup* job() const;

  // ---- What magics set -----------------------------------------------------------------------------------------------
  SessionSettings& settings() { return settings_; }
  /// Changes the environment and the working directory of all ranks, those that start later too.
  void configure(const protocol::Configure& change);
  const protocol::Configure& configuration() const;
  const std::string& directory() const { return directory_; }  // where #include "..." and the workers look
  History& history() { return history_; }
  Journal& journal() { return journal_; }
  const std::string& compiler_messages() const { return compiler_messages_; }  // about the last cell, whole: %errors

  // ---- What magics have done -----------------------------------------------------------------------------------------
  /// Shows the event to the user, through the front end.
  void show(const Event& event) {
    journal_.take(event);
    events_.take(event);
  }
  /// Emits a MessageEvent under the running cell.
  void message(std::string text, nlohmann::json data = nullptr);
  /// Does the same, with MessageEvent::is_help.
  void help(std::string text, nlohmann::json data = nullptr);
  /// Compiles and runs C++ as a part of the running cell. Lines are counted from `line` of the cell. Errors are emitted
  /// as events and are in the result's status; throws UsageError for ranks that can't run it. `over` is asked after
  /// each run of the object, with the time in ms that each rank took; true ends the runs. Without it the code runs
  /// once.
  CodeResult run_code(std::string_view code, const CellSettings& settings, int line,
                      const std::function<bool(const std::map<int, double>& run_ms)>& over = nullptr);
  /// Does the same once, with the values that it shows in `values` instead of in events.
  CodeResult run_capturing(std::string_view code, const CellSettings& settings, int line,
                           std::vector<ValueEvent>& values);
  /// Runs a command of /bin/sh on this machine, once, with the ranks' environment and directory, and shows its output.
  /// Ctrl-C interrupts it. In a rehearsal nothing runs, and the command ends well. Throws StartError.
  ProcessEnd run_command(const std::string& command);
  /// Runs a function of the worker's own (barrier) on the run threads of `ranks`.
  CodeResult run_builtin(const protocol::Function& function, const RankSet& ranks);
  /// Does what run_code does, with Python in the selected frame of the ranks of a job.
  CodeResult run_python(std::string_view code, const CellSettings& settings, int line,
                        const std::function<bool(const std::map<int, double>& run_ms)>& over = nullptr);
  /// Returns the ranks that have raised an exception in the last Python cell in which one has.
  const RankSet& raised() const;
  /// Throws UsageError where one of `ranks` is dead, or none is named. Its text says what can be done.
  void check_alive(const RankSet& ranks) const;
  /// Describes a rank by what is known without asking it.
  RankDescription describe_rank(int rank) const;
  /// Returns ranks that are in a cell that is not over, though the prompt is back.
  RankSet busy_ranks() const;
  /// Asks the I/O threads of live ranks; ranks that did not answer in time are missing from the result.
  template <typename Q>
  std::map<int, typename Q::Answer> query(const RankSet& ranks, const Q& question,
                                          std::chrono::milliseconds limit = std::chrono::milliseconds(1000)) {
    return protocol::answers_to<Q>(ask_io_threads(ranks, question, limit));
  }
  /// Asks the compiler (started if needed). Throws ChannelError when it ended and could not be started again.
  protocol::CompilerResponse ask(const protocol::CompilerRequest& request);
  /// Starts the session with its compiler; where the ranks are Python, also the compiler for the torch of those that
  /// have stopped. Returns false where Ctrl-C has ended the start. Throws lockstep::Error.
  bool start_compiler();
  /// Whether a question about C++ can be asked without a start.
  bool has_compiler() const;
  /// Ends the running cells of `ranks` as `interrupted`. Returns when they are back, or after 2 s.
  void interrupt(const RankSet& ranks);
  /// Starts dead ranks again in their places (CellRunner::restart()) and connects all ranks. Throws UsageError where a
  /// rank is not dead or ranks are in a cell.
  struct Restart {
    std::map<int, RestartedRank> ranks;  // those that are back
    bool is_connected = false;
    bool is_interrupted = false;
    std::string error;  // why the next rank could not start; empty: nothing was in its way
  };
  Restart restart(const RankSet& ranks);
  /// The session has `size` ranks from now on, more than before: those are dead until restart(). Throws UsageError.
  void grow(int size);
  /// Ends these ranks; they can be started again as dead ones. Returns those that have not ended. Throws UsageError where
  /// the others can't connect without them.
  RankSet dismiss(const RankSet& ranks);
  /// Makes the ranks that live the default group, without the dead ones. Returns whether they are connected. Throws
  /// UsageError where that can't be.
  bool continue_without_the_dead();
  /// Returns the ranks of the default group, in the order in which they count there.
  RankSet default_ranks() const;
  /// Whether Ctrl-C has ended what the last command waited for.
  bool is_interrupted() const;
  /// Frees `ranks` from the collectives they are in; their cells end as aborted. Returns when they are back, or after
  /// 5 s. Other ranks go on, until they call a collective.
  void abort(const RankSet& ranks, const std::string& reason);
  /// Returns what every rank does now and for whom it waits: a picture for each open cell, or one where none is open.
  std::vector<inspect::HangPicture> hang_pictures();

  // ---- Recording and replay (docs/replay.md) ---------------------------------------------------------------------------
  /// Has the ranks record what they receive from now on, of the last `steps` steps; 0: ends that. Throws UsageError.
  CellStatus record(int64_t steps);
  /// Writes what the ranks have recorded into a file, and returns a sentence that says so. Throws UsageError.
  std::string save_recording(const std::string& path);
  /// Returns the answer to protocol::question::Replay; nothing where the rank gives none.
  std::optional<protocol::question::Replay::Answer> replay_state();

  // ---- Of a prompt over a Python job ---------------------------------------------------------------------------------
  /// Has all ranks stop after the same training step, and serves until they have. Returns whether they did; Ctrl-C ends
  /// the wait. Throws UsageError where they count no steps.
  bool stop_job();
  /// Lets the job train on, and serves until ranks stop again. Returns false where none does: the job is over, or
  /// Ctrl-C ended the wait.
  bool resume_job();

 protected:
  SessionCore(SessionOptions options, EventSink& events);
  ~SessionCore();  // after shutdown()

  /// Returns those of target_ranks() that have started.
  RankSet live_target() const;
  /// Lets the ranks of a job that have stopped go on. Does not wait.
  void release_job();

  struct State;  // session_state.h
  std::unique_ptr<State> state_;
  SessionOptions options_;
  ActivityReporter events_;  // to the front end
  SessionSettings settings_;

 private:
  std::map<int, protocol::Answer> ask_io_threads(const RankSet& ranks, const protocol::Question& question,
                                                 std::chrono::milliseconds limit);
  std::string with_ranks_of_hosts(std::string_view spec) const;
  void check_ranks(const RankSet& ranks) const;
  void check_can_connect() const;
  void note_new_ranks(const std::map<int, RestartedRank>& back);
  int64_t take_number();
  void note_result(const CodeResult& result, const CellSettings& settings);
  std::optional<ActivityEvent> activity() const;
  void describe_session();
  SessionEvent open_workers();
  SessionEvent open_job();
  SessionEvent open_python();
  const protocol::CompilerReady& wait_for_compiler();
  /// Returns the places of a session without ranks on this machine; waits for their relays.
  RankPlaces places_elsewhere();
  bool start_compiler_of_job(const RankSet& ranks);
  void report_start_step(const protocol::CompilerProgress& step);
  void check_record_options(const RecordOptions& record) const;
  /// Returns what running the cells of the ranks again needs.
  nlohmann::json recorded_session() const;
  void conclude_replay();
  void keep_recording();

  const std::string id_;
  Journal journal_;
  History history_;
  std::string directory_;
  std::string compiler_messages_;
};

}  // namespace lockstep::shell
