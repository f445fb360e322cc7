// Holds the parts of a session while it is started, and the cell that runs. For the session's own files only.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shell/cells/cell_runner.h"
#include "shell/jobs/job_group.h"
#include "shell/jobs/job_objects.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/object_source.h"
#include "shell/processes/rank_group.h"
#include "shell/processes/session_directory.h"
#include "shell/scripts/magic.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {

/// Describes the cell that run() is at.
struct RunningCell {
  std::string title, text;
  int64_t number = 0;                          // 0 until C++ of it runs
  CellSettings settings;
  CellEnd end;
  CellEvent event;
  CellStatus status = CellStatus::ok;
  std::string magic;  // the line magic that runs, as it was typed
};

/// While it lives, an interrupt calls `command` instead of interrupting ranks.
class InterruptScope {
 public:
  InterruptScope(std::function<void()>& slot, std::function<void()> command) : slot_(slot) {
    slot_ = std::move(command);
  }
  ~InterruptScope() { slot_ = nullptr; }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  std::function<void()>& slot_;
};

/// How far a start has come, for the display of the activity.
struct StartProgress {
  EventLoop::Clock::time_point since = EventLoop::Clock::now(), step_since;
  std::optional<protocol::StartStep> step;  // the last one that the compiler has reported, with its time
};

/// While it lives, the session starts something.
class StartScope {
 public:
  explicit StartScope(std::optional<StartProgress>& slot) : slot_(slot) { slot_.emplace(); }
  ~StartScope() { slot_.reset(); }
  StartScope(const StartScope&) = delete;
  StartScope& operator=(const StartScope&) = delete;

 private:
  std::optional<StartProgress>& slot_;
};

struct SessionCore::State {
  EventLoop loop;
  std::unique_ptr<SessionDirectory> directory;
  std::unique_ptr<ObjectSource> compiler;
  std::unique_ptr<RankGroup> workers;
  JobGroup* job = nullptr;  // the same, at a prompt over a Python job
  JobObjects* job_objects = nullptr;  // then `compiler`
  std::unique_ptr<CellRunner> runner;  // once all of these are ready
  std::optional<StartProgress> start;  // while one is under way
  protocol::Configure configuration;
  SessionEvent event;  // the last that was shown; its backend is that of later groups
  nlohmann::json description;  // of session.json, without its workers
  int64_t last_number = 0;
  size_t history_at_start = 0;  // how many entries it had when the ranks started
  int64_t record_steps = 0;  // that the ranks record now
  bool is_recorded = false;  // they do, or did
  int recordings = 0;  // files that were written when ranks ended
  RunningCell* cell = nullptr;
  RankSet raised;  // ranks that have raised an exception in the last Python cell in which one has
  std::vector<ValueEvent>* captured_values = nullptr;  // where values go instead of to the front end
  std::function<void()> interrupt_command;  // set while a command runs
  std::function<void()> typed;  // Session::watch_typing()

  RankGroup::Listener listener(std::function<void(const std::string&)> warning);
  /// Ends all that a start has made.
  void end() {
    runner.reset();
    job = nullptr;
    job_objects = nullptr;
    workers.reset();
    compiler.reset();
    directory.reset();
    raised = RankSet();
  }
  ~State() { end(); }
};

}  // namespace lockstep::shell
