#include "worker/run_thread.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "collectives/log/meetings.h"
#include "collectives/log/process_identity.h"
#include "collectives/session_group.h"
#include "inspectors/exchange/report.h"
#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/installation.h"
#include "worker/cell/call_sites.h"
#include "worker/cell/cell_error.h"
#include "worker/cell/rank_names.h"
#include "worker/host.h"
#include "worker/libtorch.h"
#include "worker/process/interrupt.h"
#include "worker/process/run_state.h"
#include "worker/process/standard_streams.h"
#include "worker/recording.h"
#include "worker/standard_input.h"

namespace lockstep::worker {
namespace {

constexpr double kLongWait_s = 0.1;  // in a collective, until the session hears of it

}  // namespace

RunThread::RunThread(const Configuration& configuration, Outbox& outbox, RunQueue& queue, IoThread& io)
    : configuration_(configuration),
      threads_(configuration.threads),
      outbox_(outbox),
      queue_(queue),
      io_(io),
      cells_([this](const Finding& finding) { outbox_.post(protocol::FindingMessage{finding}); }) {}

int RunThread::run() {
  if (!start()) return 3;
  run_state().enter(RankState::idle);
  while (!ended_) {
    Task task = queue_.pop();
    std::visit(
        [this, &task](const auto& what) {
          using What = std::remove_cvref_t<decltype(what)>;
          if constexpr (std::is_same_v<What, protocol::Shutdown>)
            ended_ = true;
          else if constexpr (std::is_same_v<What, protocol::Load>)
            handle(what, task.frame);
          else if constexpr (std::is_same_v<What, protocol::Regroup>)
            handle(what, task.aborts);
          else
            handle(what);
        },
        task.what);
  }
  run_state().enter(RankState::ending);
  dist::end_session_group();
  return 0;
}

bool RunThread::not_ready(const std::string& message) {
  outbox_.post(protocol::NotReady{message});
  return false;
}

bool RunThread::start() {
  protocol::Hello hello;
  hello.rank = configuration_.rank;
  hello.pid = ::getpid();
  hello.host = protocol::host_name();
  hello.machine = dist::machine_identity();
  hello.device = configuration_.device;
  hello.versions.libtorch = libtorch_version();
  hello.cell_limit = cells_left();
  outbox_.post(hello);
  if (!configuration_.problems.empty()) return not_ready(fmt::format("{}", fmt::join(configuration_.problems, "; ")));
  if (protocol::minor_of(hello.versions.libtorch) != protocol::minor_of(libtorch_built_with()))
    return not_ready(
        fmt::format("the worker was built with LibTorch {} and runs with {}: set LD_LIBRARY_PATH back, or "
                    "build again with LOCKSTEP_LIBTORCH naming the one to use",
                    libtorch_built_with(), hello.versions.libtorch));
  if (::mkdir(configuration_.rank_dir().c_str(), 0700) != 0 && errno != EEXIST)
    return not_ready(
        fmt::format("the session's folder {} can't be written: {}", configuration_.session_dir, std::strerror(errno)));
  try {
    device_ = std::make_unique<Device>(configuration_.device, configuration_.backend);
    io_.set_device(device_.get());
    device_work_.emplace(device_->state(), device_->index(), device_->str());
    set_libtorch_threads(configuration_.threads);
    dist::set_waiting_callback([this](const dist::CollectiveRecord& record, const RankSet& missing) {
      outbox_.report_waiting(record, missing);
    });
    dist::watch_long_waits(kLongWait_s, [this] { io_.look_at_waits(); });
    dist::set_place_of([](uint64_t return_address) {
      Symbols symbols;  // whichever thread has seen the mismatch asks
      const uintptr_t address = return_address - 1;
      const auto frames = symbols.resolve({&address, 1});
      const Frame* frame = innermost_cell_frame(frames);
      return frame ? where(frame->cell, frame->line) : std::string();
    });
    install_call_sites();
    inspect::set_finding_sink([this](const Finding& found) {
      Finding finding = found;
      finding.cell = run_state().cell();
      if (const int line = run_state().line(); line > 0 && !finding.where)
        finding.where = fmt::format("cell {}, line {}", run_state().number(), line);
      outbox_.post(protocol::FindingMessage{finding});
    });
    dist::SessionGroupOptions group;
    group.rank = configuration_.rank;
    group.world_size = configuration_.world_size;
    group.store_address = configuration_.store;
    group.store_key = configuration_.store_key;
    group.backend = configuration_.backend;
    group.device = configuration_.device;
    group.log_path = configuration_.rank_dir() + "/log";
    group.check_collectives = configuration_.check_collectives;
    group.generation = configuration_.generation;
    group.player = make_player(configuration_);
    dist::start_session_group(group);
  } catch (const std::exception& error) {
    return not_ready(describe_current_exception(cells_.symbols()).error.message);
  }
  return true;
}

void RunThread::handle(const protocol::Prelude& prelude) {
  if (!prelude.path.empty()) {
    if (const auto problem = load_library(prelude.path); !problem.empty()) {
      not_ready("the prelude of the cells can't be loaded: " + problem);
      ended_ = true;
      return;
    }
  }
  outbox_.post(protocol::Ready{configuration_.threads});
}

void RunThread::handle(const protocol::Load& load, const std::string& bytes) {
  run_state().enter(RankState::loading);
  const protocol::Loaded loaded = cells_.load(load, configuration_.rank_dir(), bytes);
  run_state().enter(RankState::idle);
  outbox_.post(loaded);
}

void RunThread::handle(const protocol::Drop& drop) { cells_.drop(drop.cell); }

/// Cells count in the default group, which may have changed. Without one (destroy_process_group) nothing has.
void RunThread::take_rank_number() {
  if (const auto number = dist::rank_number()) set_rank_number(number->rank, number->world_size);
}

void RunThread::begin_cell(int64_t cell, int64_t number) {
  run_state().begin_cell(cell, number == 0 ? cell : number);
  dist::name_cell(cell, run_state().number());
  reset_standard_input();
  outbox_.begin_cell(cell);
}

void RunThread::end_device_work(protocol::Done& done, int64_t step) {
  if (!device_work_) return;
  std::optional<DeviceFailure> failure;
  bool asked = false;
  const auto end = [&](bool waits) {
    asked = true;
    run_state().set_waits_for_device(waits);
    failure = device_work_->end_cell(run_state().number(), waits);
    run_state().set_waits_for_device(false);
  };
  if (done.status == CellStatus::ok && device_work_->is_used()) {
    // It runs as a step, so that an interrupt that comes meanwhile ends the cell as in any other.
    const int64_t steps_done = done.steps_done;
    cells_.run_step(
        [&] {
          end(true);
          lockstep_poll();
        },
        step, 0, done);
    done.steps_done = steps_done;
    if (done.status == CellStatus::ok && stop_requests().pending() == StopReason::abort) {
      done.status = CellStatus::aborted;
      done.error.emplace();
      done.error->type = "lockstep::dist::Aborted";
      done.error->message = "the cell was aborted while its work on " + device_->str() + " ran";
      done.error->root_cause = false;
    }
  }
  // The error of a cell is reported at once, whatever its work on the device may wait for.
  if (!asked) end(done.status == CellStatus::ok);
  if (!failure) return;
  device_is_lost_ = failure->lost;
  if (done.error && done.status == CellStatus::error) {
    // The line is that of the call that has met the error, or that failed for a reason of its own.
    done.error->message += "\n" + failure->message;
    return;
  }
  done.status = CellStatus::error;
  done.error.emplace();
  done.error->type = failure->type;
  done.error->message = failure->message;
  if (failure->first_cell == failure->last_cell) {
    done.error->where = fmt::format("cell {}", failure->last_cell);
    done.error->where_cell = failure->last_cell;
  }
}

void RunThread::end_rank(const protocol::Done& done) {
  outbox_.post(protocol::Dying{done.cell, *done.error});
  // No destructors run: those of tensors and libraries would call the device.
  io_.finish();
  ::syscall(SYS_exit_group, 1);
  __builtin_unreachable();
}

void RunThread::end_cell(protocol::Done done, double run_ms) {
  flush_standard_streams();
  if (device_is_lost_) end_rank(done);
  stop_requests().disarm();
  dist::set_thread_context(0);
  done.run_ms = run_ms;
  done.collectives = dist::progress();
  done.regroup = dist::needs_regroup();
  run_state().enter(RankState::idle);
  outbox_.post(done);
}

void RunThread::handle(const protocol::Run& run) {
  protocol::Done done;
  done.cell = run.cell;
  done.status = CellStatus::ok;
  begin_cell(run.cell, run.number);
  const auto start = std::chrono::steady_clock::now();
  std::optional<dist::Rejoining> rejoining;
  if (run.again) {
    rejoining.emplace();
    dist::set_session_members(run.members);
    take_rank_number();
  }
  // A replay runs no cell that the recorded rank has not run.
  if (cells_.run_step([] { dist::begin_recorded_cell(run_state().number()); }, 0, 0, done)) cells_.run(run, done);
  dist::end_recorded_cell(done.status == CellStatus::ok);
  end_device_work(done, std::max<int64_t>(0, done.steps_done - 1));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  end_cell(std::move(done), took.count());
}

void RunThread::handle(const protocol::Builtin& builtin) {
  protocol::Done done;
  done.cell = builtin.cell;
  done.status = CellStatus::ok;
  begin_cell(builtin.cell, 0);
  const auto start = std::chrono::steady_clock::now();
  const auto step = [this, &builtin] {
    if (const auto* unreadable = std::get_if<protocol::Unreadable>(&builtin.function))
      throw StartError(unreadable->problem);
    if (std::holds_alternative<protocol::function::Preempted>(builtin.function)) return run_preemption_function();
    if (const auto* recorded = std::get_if<protocol::function::Record>(&builtin.function))
      return record(configuration_, recorded->steps);
    if (!std::holds_alternative<protocol::function::Barrier>(builtin.function))
      throw StartError("a worker can't do what ranks of Python jobs do");
    barrier();
  };
  if (cells_.run_step(step, 0, 0, done)) done.steps_done = 1;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  end_cell(std::move(done), took.count());
}

/// Follows a session that has grown. Its environment becomes that with which new ranks start, so that all ranks are alike.
/// A number of threads that a cell has chosen stays.
void RunThread::follow_size(const protocol::Regroup& regroup) {
  const std::string size = std::to_string(regroup.world_size);  // all ranks are on this machine
  for (const auto& [name, value] : {std::pair<const char*, std::string>("LOCKSTEP_WORLD_SIZE", size),
                                    {"LOCKSTEP_LOCAL_WORLD_SIZE", size},
                                    {"LOCKSTEP_BACKEND", regroup.backend},
                                    {"LOCKSTEP_THREADS", std::to_string(regroup.threads)}})
    if (const char* before = std::getenv(name); !before || value != before) ::setenv(name, value.c_str(), 1);
  dist::resize_session(regroup.world_size, regroup.backend);
  if (libtorch_threads() == threads_) set_libtorch_threads(threads_ = regroup.threads);
}

void RunThread::handle(const protocol::Regroup& regroup, int64_t aborts) {
  run_state().enter(RankState::regrouping);
  protocol::Regrouped answer;
  answer.generation = regroup.generation;
  try {
    if (regroup.world_size > 0) follow_size(regroup);
    dist::regroup_session(regroup.generation, regroup.ranks, regroup.members, regroup.timeout_s, aborts);
    answer.ok = true;
  } catch (const std::exception& error) {
    answer.message = error.what();
  }
  take_rank_number();
  run_state().enter(RankState::idle);  // before the hub hears of it: it may ask what the rank is at
  outbox_.post(answer);
}

void RunThread::handle(const protocol::Configure& configure) {
  for (const auto& [name, value] : configure.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (configure.directory && ::chdir(configure.directory->c_str()) != 0)
    fmt::print(stderr, "rank {} can't change to {}: {}\n", configuration_.rank, *configure.directory,
               std::strerror(errno));
}

}  // namespace lockstep::worker
