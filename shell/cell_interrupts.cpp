// How the runner of cells ends them: time limits, interrupts and aborts.
#include <fmt/format.h>

#include "shell/cell_runner.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSecondInterrupt{3000};
// After a time limit: how long an interrupt may take, then an abort of collectives; what is left then is killed.
constexpr milliseconds kAfterInterrupt{2000};
constexpr milliseconds kAfterAbort{3000};
constexpr int kLastStage = 2;
constexpr milliseconds kAbortLimit{5000};

}  // namespace

void CellRunner::start_limits(OpenCell cell) {
  timeout_stage_ = 0;
  if (options_.cell_timeout_s > 0)
    cell_timer_ = loop_.at(Clock::now() + milliseconds(static_cast<int64_t>(options_.cell_timeout_s * 1000)),
                           [this] { cell_timeout(); });
}

void CellRunner::cell_timeout() {
  cell_timer_.reset();
  if (!current_) return;
  CellRun& run = (*current_)->run;
  switch (timeout_stage_++) {
    case 0:
      run.timed_out();
      interrupt(run.active());
      cell_timer_ = loop_.at(Clock::now() + kAfterInterrupt, [this] { cell_timeout(); });
      break;
    case 1:
      workers_.hub().send(run.active(), protocol::Abort{"the cell's time is over"});
      cell_timer_ = loop_.at(Clock::now() + kAfterAbort, [this] { cell_timeout(); });
      break;
    default:
      say(run.active().words() + " could not be interrupted and " + (run.active().size() == 1 ? "is" : "are") +
          " ended");
      for (int rank : run.active()) workers_.kill(rank);
  }
}

/// As after a time limit whose interrupt and abort have passed.
void CellRunner::end_what_stays() {
  if (cell_timer_) loop_.cancel(*cell_timer_);
  timeout_stage_ = kLastStage;
  cell_timer_ = loop_.at(Clock::now() + kAfterAbort, [this] { cell_timeout(); });
}

void CellRunner::interrupt(const RankSet& ranks) {
  for (auto& cell : cells_) {
    const RankSet inside = cell.run.active() & ranks;
    workers_.hub().send(inside, protocol::Interrupt{cell.run.id()});
  }
}

void CellRunner::abort(const RankSet& ranks, const std::string& reason) {
  const RankSet meant = busy() & ranks;
  const RankSet outside = hangs_.outside_collectives(meant);
  workers_.hub().send(meant, protocol::Abort{reason});
  loop_.run_until([&] { return (busy() & (meant - outside)).empty(); }, Clock::now() + kAbortLimit);
}

void CellRunner::user_interrupt() {
  const auto now = Clock::now();
  interrupted_ = true;
  if (compiling_) compiler_.cancel();
  if (!current_) return;
  const RankSet active = (*current_)->run.active();
  interrupts_ = interrupts_ > 0 && now - last_interrupt_ > kSecondInterrupt && interrupts_ < 2 ? 1 : interrupts_ + 1;
  last_interrupt_ = now;
  if (interrupts_ == 1) {
    interrupt(active);
  } else if (interrupts_ == 2 && !active.empty()) {
    say(fmt::format("{} did not come back. Ctrl-C once more ends {}: what {} holds is lost, the others keep theirs",
                    active.words(), active.size() == 1 ? "it" : "them", active.size() == 1 ? "it" : "they"));
    interrupt(active);
  } else if (interrupts_ > 2) {
    for (int rank : active) workers_.kill(rank);
  }
}

void CellRunner::cancel_timers() {
  if (cell_timer_) loop_.cancel(*cell_timer_);
  cell_timer_.reset();
}

}  // namespace lockstep::shell
