// How the runner of cells ends them: time limits, interrupts and aborts.
#include <fmt/format.h>

#include <utility>

#include "shell/cells/cell_runner.h"

namespace lockstep::shell {
namespace {

using std::chrono::milliseconds;

// After a Ctrl-C: how long ranks may take before people are told that they have not come back.
constexpr milliseconds kPatience{2000};
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

/// What comes after an interrupt is no cause of its own: for who asks what happened first.
void CellRunner::note_interrupt() {
  interrupted_ = true;
  if (before_interrupt_) return;
  before_interrupt_ = BeforeInterrupt{.status = CellStatus::ok, .findings = findings_.all(), .live = workers_.live()};
  if (!lost_.empty()) before_interrupt_->status = CellStatus::dead;
  if (current_ && (*current_)->run.first_cause()) before_interrupt_->status = *(*current_)->run.first_cause();
}

void CellRunner::user_interrupt() {
  note_interrupt();
  if (!current_) return;
  const RankSet active = (*current_)->run.active();
  ++interrupts_;
  if (interrupts_ == 1) {
    interrupt(active);
    if (patience_timer_) loop_.cancel(*patience_timer_);
    patience_timer_ = loop_.at(Clock::now() + kPatience, [this] { report_patience(); });
  } else if (interrupts_ == 2 && !active.empty()) {
    const bool one = active.size() == 1, others = !(workers_.live() - active).empty();
    say(fmt::format("{} did not come back. Ctrl-C once more ends {}: what {} is lost{}", active.words(),
                    one ? "it" : "them", one ? "it holds" : "they hold", others ? ", the others keep theirs" : ""));
    interrupt(active);
  } else if (interrupts_ > 2) {
    for (int rank : active) workers_.kill(rank);
  }
}

void CellRunner::report_patience() {
  patience_timer_.reset();
  if (!current_ || interrupts_ > 1) return;
  const RankSet active = (*current_)->run.active();
  if (!active.empty())
    say(fmt::format("{} not come back yet. Ctrl-C again offers to end {}",
                    active.words() + (active.size() == 1 ? " has" : " have"), active.size() == 1 ? "it" : "them"));
}

void CellRunner::leave() {
  leaving_ = true;
  note_interrupt();
  if (!current_) return;
  interrupt((*current_)->run.active());
  end_what_stays();
}

void CellRunner::cancel_timers() {
  for (auto* timer : {&cell_timer_, &patience_timer_})
    if (const auto running = std::exchange(*timer, std::nullopt)) loop_.cancel(*running);
}

}  // namespace lockstep::shell
