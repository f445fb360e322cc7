#include "shell/cells/cell_stopper.h"

#include <fmt/format.h>

namespace lockstep::shell {

using std::chrono::milliseconds;

CellStopper::CellStopper(const CellServices& services, OpenCells& cells)
    : services_(services),
      cells_(cells),
      stuck_(services),
      user_deadline_(services.loop),
      limit_deadline_(services.loop) {}

void CellStopper::begin() {
  is_interrupted_ = is_leaving_;
  gives_up_ = false;
  user_.begin();
}

void CellStopper::start() {
  limit_.begin();
  if (const double limit_s = services_.options.cell_timeout_s; limit_s > 0)
    limit_deadline_.set_after(milliseconds(static_cast<int64_t>(limit_s * 1000)), [this] { limit_step(); });
  if (is_interrupted_) interrupt(cells_.served()->run.ranks());
}

void CellStopper::stop() {
  user_deadline_.cancel();
  limit_deadline_.cancel();
  stuck_.cancel();
}

void CellStopper::interrupt(const RankSet& ranks) {
  for (const OpenCell& cell : cells_.all())
    services_.workers.hub().send(cell.run.active() & ranks, protocol::Interrupt{cell.run.id()});
}

void CellStopper::end(const RankSet& ranks) {
  for (int rank : ranks) services_.workers.kill(rank);
}

// ---- The user -------------------------------------------------------------------------------------------------------

void CellStopper::user_interrupt() {
  is_interrupted_ = true;
  if (cells_.served()) user_step(user_.requested(UserStop::Clock::now()));
}

void CellStopper::user_step(StopStep step) {
  if (!cells_.served()) return;
  const RankSet active = cells_.served()->run.active();
  const bool one = active.size() == 1;
  if (!services_.workers.owns_processes() && step != StopStep::interrupt) return user_step_in_job(step, active);
  if (step == StopStep::interrupt) {
    interrupt(active);
    user_deadline_.set_after(UserStop::kPatience, [this] { user_step(user_.patience_is_over()); });
  } else if (step == StopStep::remind && !active.empty()) {
    stuck_.ask(active, [this] { remind(); });
  } else if (step == StopStep::offer && !active.empty()) {
    const bool others = !(services_.workers.live() - active).empty();
    services_.message(fmt::format("{} did not come back. {} once more ends {}: what {} is lost{}", active.words(),
                                  services_.options.interrupt_words, one ? "it" : "them",
                                  one ? "it holds" : "they hold", others ? ", the others keep theirs" : ""));
    interrupt(active);
  } else if (step == StopStep::end) {
    end(active);
  }
}

/// Names what an interrupt can't end, and asks whether to end the rank.
void CellStopper::remind() {
  if (!cells_.served() || user_.phase() != UserStop::Phase::interrupted) return;
  const RankSet active = cells_.served()->run.active();
  if (active.empty()) return;
  const bool one = active.size() == 1;
  services_.message(fmt::format("{} not come back yet. {} again offers to end {}{}",
                                active.words() + (one ? " has" : " have"), services_.options.interrupt_words,
                                one ? "it" : "them", stuck_.words(active)));
}

/// Ranks of a job are not ended: the prompt comes back, and the cell goes on there.
void CellStopper::user_step_in_job(StopStep step, const RankSet& active) {
  if (active.empty()) return;
  const bool one = active.size() == 1;
  if (step == StopStep::remind) {
    services_.message(fmt::format("{} not come back yet; {} again gives the prompt back",
                                  active.words() + (one ? " has" : " have"), services_.options.interrupt_words));
  } else if (step == StopStep::offer) {
    interrupt(active);
    gives_up_ = true;
    services_.message(fmt::format("{} still in the cell, which goes on there; a cell on other ranks may join {}",
                                  active.words() + (one ? " is" : " are"), one ? "it" : "them"));
  }
}

void CellStopper::leave() {
  is_leaving_ = true;
  is_interrupted_ = true;
  if (!cells_.served()) return;
  interrupt(cells_.served()->run.active());
  end_what_stays();
}

// ---- Limits ---------------------------------------------------------------------------------------------------------

void CellStopper::limit_step() {
  if (!cells_.served()) return;
  CellRun& run = cells_.served()->run;
  switch (limit_.time_is_over()) {
    case StopStep::interrupt:
      run.timed_out();
      interrupt(run.active());
      break;
    case StopStep::abort:
      if (services_.workers.owns_processes())  // the process group of a job is not the cell's
        services_.workers.hub().send(run.active(), protocol::Abort{"the cell's time is over"});
      stuck_.ask(run.active());
      break;
    default:
      services_.message(fmt::format("{} could not be interrupted and {} {}{}", run.active().words(),
                                    run.active().size() == 1 ? "is" : "are",
                                    services_.workers.owns_processes() ? "ended" : "left alone: the cell goes on there",
                                    stuck_.words(run.active())));
      end(run.active());
  }
  if (const auto patience = limit_.patience()) limit_deadline_.set_after(*patience, [this] { limit_step(); });
}

void CellStopper::end_what_stays() {
  limit_.skip_to_end();
  stuck_.ask(cells_.served()->run.active());
  limit_deadline_.set_after(limit_.patience().value(), [this] { limit_step(); });
}

}  // namespace lockstep::shell
