// What a session holds while it is started, and the cell that it is at. For the session's own files only.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

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

/// The cell that run() is at.
struct RunningCell {
  std::string title, text;
  int64_t number = 0;                          // 0 until C++ of it runs
  CellSettings settings;
  CellEnd end;
  CellEvent event;
  CellStatus status = CellStatus::ok;
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

struct SessionCore::State {
  EventLoop loop;
  Pipe signals = make_pipe();
  std::unique_ptr<SessionDirectory> directory;
  std::unique_ptr<ObjectSource> compiler;
  std::unique_ptr<RankGroup> workers;
  JobGroup* job = nullptr;  // the same, at a prompt over a Python job
  JobObjects* job_objects = nullptr;  // then `compiler`
  std::unique_ptr<CellRunner> runner;
  protocol::Configure configuration;
  int64_t last_number = 0;
  RunningCell* cell = nullptr;
  std::vector<ValueEvent>* captured_values = nullptr;  // they go there
  bool starting = false;
  bool starting_compiler = false;  // at the first C++ cell over a Python job
  EventLoop::Clock::time_point starting_since, start_step_since;
  std::optional<protocol::StartStep> start_step;  // of a build at the start
  std::function<void()> interrupt_command;  // while one runs

  ~State() {
    runner.reset();
    workers.reset();
    compiler.reset();
    loop.forget(signals.read.get());
  }
};

}  // namespace lockstep::shell
