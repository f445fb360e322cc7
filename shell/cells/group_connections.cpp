#include "shell/cells/group_connections.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace lockstep::shell {
namespace {

using Clock = EventLoop::Clock;

constexpr std::chrono::seconds kRegroupLimit{30};
constexpr std::chrono::seconds kRegroupGrace{5};  // for the answers
constexpr std::chrono::seconds kStopRegroupLimit{1};

}  // namespace

void GroupConnections::enter(Phase to) {
  if ((to == Phase::connecting && phase_ == Phase::in_step) || (to == Phase::in_step && phase_ != Phase::connecting))
    throw std::logic_error("connections of ranks changed to a phase that can't follow");
  phase_ = to;
}

/// A step that is lost while the ranks connect shows in their answers, or in the ranks that live then.
void GroupConnections::lose_step() {
  // Groups of a job are its own: the user has to correct what is out of step there.
  if (phase_ == Phase::in_step && services_.workers.owns_processes()) enter(Phase::out_of_step);
}

void GroupConnections::set_default_ranks(const RankSet& ranks) {
  if (std::exchange(default_ranks_, ranks) != ranks) lose_step();
}

bool GroupConnections::connect_if_needed(const std::function<bool()>& interrupted) {
  RankGroup& workers = services_.workers;
  const RankSet live = workers.live();
  if (phase_ == Phase::in_step || !cells_.busy().empty() || live.empty()) return false;
  if (workers.has_store()) {
    enter(Phase::connecting);
    answers_.clear();
    protocol::Regroup regroup{.generation = ++generation_,
                              .ranks = live,
                              .members = default_ranks_,
                              .timeout_s = static_cast<double>(kRegroupLimit.count()),
                              .backend = {}};
    if (const auto& plan = workers.grown())
      regroup.world_size = plan->world_size, regroup.backend = plan->backend, regroup.threads = plan->threads;
    workers.hub().send(live, regroup);
    const auto answered = [&] { return all_answered(live); };
    const auto has_died = [&] { return (live & workers.live()) != live; };
    const auto stopped = [&] { return interrupted() || !workers.has_store() || has_died(); };
    services_.loop.run_until([&] { return answered() || stopped(); }, Clock::now() + kRegroupLimit + kRegroupGrace);
    if (stopped()) {  // those that have connected give it up, too: the next cell tries again with all of them
      workers.hub().send(live & workers.live(), protocol::Abort{"connecting the ranks again was stopped"});
      services_.loop.run_until(answered, Clock::now() + kStopRegroupLimit);
    }
    if (interrupted()) {
      enter(Phase::out_of_step);
      return false;
    }
    if (has_died() && workers.has_store()) {  // the others would wait for it until their time limit
      enter(Phase::out_of_step);
      return connect_if_needed(interrupted);
    }
  }
  if (workers.has_store()) return conclude(live);
  enter(Phase::out_of_step);
  if (!std::exchange(reported_no_store_, true))
    services_.message(
        "the ranks can't connect to one another again without the store; collectives fail until %dist_reset starts "
        "afresh");
  return false;
}

/// Whether all live ranks are connected; reports why not.
bool GroupConnections::conclude(const RankSet& asked) {
  RankSet failed;
  std::string why;
  for (int rank : asked& services_.workers.live()) {
    const auto answer = answers_.find(rank);
    if (answer != answers_.end() && answer->second.ok) continue;
    failed.insert(rank);
    if (why.empty()) why = answer == answers_.end() ? "no answer" : answer->second.message;
  }
  const bool all_live = (asked & services_.workers.live()) == asked;
  enter(failed.empty() && all_live ? Phase::in_step : Phase::out_of_step);
  if (!failed.empty())
    services_.message("the ranks could not connect to one another again (" + failed.words() + ": " + why +
                      "); collectives will fail until they do: the next cell tries again, %dist_reset starts afresh");
  return phase_ == Phase::in_step;
}

bool GroupConnections::all_answered(const RankSet& asked) const {
  const RankSet live = asked & services_.workers.live();
  return std::all_of(live.begin(), live.end(), [&](int rank) { return answers_.contains(rank); });
}

void GroupConnections::answered(int rank, const protocol::Regrouped& message) {
  if (message.generation == generation_) answers_[rank] = message;
}

// ---- The store ------------------------------------------------------------------------------------------------------

void GroupConnections::waits_in_new_group(int rank) {
  in_new_group_.insert(rank);
  if (!services_.workers.has_store()) end_new_groups();
}

void GroupConnections::store_ended(const std::string& how) {
  services_.emit(ErrorEvent{.cell = 0,
                            .ranks = {},
                            .type = "session_error",
                            .message = "the store's process " + how +
                                       ". Ranks that are connected stay so, but new groups fail, and after an "
                                       "interrupt or a death collectives do: %dist_reset starts afresh"});
  end_new_groups();
}

/// Interrupts ranks that wait in the store for others, with the reason: a new group connects through the store.
void GroupConnections::end_new_groups() {
  for (OpenCell& cell : cells_.all()) {
    const RankSet inside = cell.run.active() & in_new_group_;
    if (inside.empty()) continue;
    if (!std::exchange(cell.reported_no_store, true))
      services_.emit(
          ErrorEvent{.cell = cell.run.number(),
                     .ranks = {},  // more may follow
                     .type = "session_error",
                     .message = "dist::new_group needs the store, which is gone: %dist_reset starts afresh"});
    cell.run.stalled();
    services_.workers.hub().send(inside, protocol::Interrupt{cell.run.id()});
  }
}

}  // namespace lockstep::shell
