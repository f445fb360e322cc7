// How a session ends whose ranks may still save what they hold: Slurm, or whoever else sends SIGTERM, leaves some time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "protocol/slurm_signals.h"
#include "shell/hosts/host.h"
#include "shell/processes/deadline.h"
#include "shell/session/session.h"
#include "shell/session/session_state.h"

namespace lockstep::shell {
namespace {

using std::chrono::seconds;

// It counts where nobody says how much time is left: Slurm and Kubernetes leave that much by default.
constexpr seconds kUsualTime{30};
// A rank that hangs while it saves does not keep an allocation for the rest of its hours.
constexpr seconds kLongestTime{600};
// The end of the session itself takes that long.
constexpr seconds kReserve{1};
constexpr std::chrono::milliseconds kStatusLimit{1000};

}  // namespace

void Session::leave(int signal) noexcept {
  if (std::ranges::find(protocol::kPreemptionSignals, signal) != std::end(protocol::kPreemptionSignals)) {
    int none = 0;
    preempted_by_.compare_exchange_strong(none, signal);
    return send(Asked::preempt);
  }
  send(Asked::leave);
}

/// Interrupts the cell that runs, at the first of these signals. Slurm sends SIGTERM twice.
void Session::take_preemption() {
  if (preempted_until_) return;
  take(Asked::leave);
  say_preempted();
  // Some interrupts take long, such as one that waits for an operator on a large tensor.
  if (state_->runner && !ranks_that_save().empty())
    state_->runner->give_time((*preempted_until_ - EventLoop::Clock::now()) / 2);
}

/// Says it once.
void Session::say_preempted() {
  const int signal = preempted_by_;
  if (signal == 0 || preempted_until_) return;
  const SlurmEnd end = slurm_end();
  const auto kill_wait = end.job.empty() ? std::nullopt : slurm_kill_wait();
  const auto until_end = end.words.empty() || end.left ? end.left : kill_wait;
  // Slurm may not say yet that it ends the job, and somebody may send SIGTERM hours before its end.
  const bool is_end_known = until_end && (!end.words.empty() || signal != SIGTERM);
  const seconds left = is_end_known ? std::min(*until_end, kLongestTime) : kill_wait.value_or(kUsualTime);
  preempted_until_ = EventLoop::Clock::now() + std::max(left - kReserve, seconds(1));
  std::string text = signal_name(signal) + ": ";
  if (!end.words.empty())
    text += end.words;
  else if (!end.job.empty() && is_end_known)
    text += fmt::format("job {} of Slurm is to end", end.job);
  else
    text += "the session is to end";
  if (is_end_known) text += fmt::format("; {} s {} left", until_end->count(), until_end->count() == 1 ? "is" : "are");
  message(text);
}

void Session::run_on_preempt() {
  say_preempted();
  if (!preempted_until_ || !started() || !state_->workers->owns_processes()) return;
  interrupt_busy_ranks();
  RankSet ranks = ranks_that_save();
  if (const RankSet busy = ranks & busy_ranks(); !busy.empty()) {
    message(fmt::format("{} still in a cell: on_preempt does not run there",
                        busy.words() + (busy.size() == 1 ? " is" : " are")));
    ranks = ranks - busy;
  }
  if (ranks.empty()) return;
  message(fmt::format("{} on_preempt", ranks.words() + (ranks.size() == 1 ? " runs" : " run")));
  save(ranks);
}

/// Returns the ranks on which a cell has called on_preempt().
RankSet Session::ranks_that_save() {
  RankSet ranks;
  const auto answers = query(live_ranks(), protocol::question::Status(), kStatusLimit);
  for (const auto& [rank, answer] : answers)
    if (answer.on_preempt) ranks.insert(rank);
  if (const std::string errors = protocol::errors_in(answers); !errors.empty())
    message("on which ranks on_preempt is registered is not known:\n" + errors);
  return ranks;
}

/// Has the ranks call what they have registered, as a cell of its own.
void Session::save(const RankSet& ranks) {
  State& s = *state_;
  RunningCell cell;
  cell.title = "on_preempt";
  s.cell = &cell;
  s.runner->stay();
  s.runner->begin_cell();
  Deadline limit(s.loop);
  limit.set(*preempted_until_, [&] {
    message("the time for on_preempt is over");
    s.runner->leave();
  });
  cell.number = ++s.last_number;
  try {
    const CodeResult result = run_builtin(protocol::function::Preempted(), ranks);
    show(CellEvent{.cell = cell.number,
                   .title = cell.title,
                   .ranks = ranks,
                   .status = result.status,
                   .rank_status = result.rank_status,
                   .run_ms = result.run_ms});
  } catch (const std::exception& error) {
    show(ErrorEvent{.cell = cell.number, .ranks = {}, .type = "session_error", .message = error.what()});
  }
  s.cell = nullptr;
}

}  // namespace lockstep::shell
