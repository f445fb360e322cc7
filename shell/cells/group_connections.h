// Keeps the connections among the ranks: whether their collectives are in step, and connecting them again where they
// are not. The store's process makes all connections, so without it there are no new ones. The default group has all
// ranks of the session, or after a death only those that went on without the others, numbered in their order.
//
//   in_step ─→ out_of_step ─→ connecting ─→ in_step
//                   ↑             └─→ out_of_step, where it failed: the next cell tries again
//                   └── an interrupt, an abort, a death, or different numbers of collectives
#pragma once
#include <functional>
#include <map>
#include <string>

#include "shell/cells/cell_services.h"
#include "shell/cells/open_cells.h"

namespace lockstep::shell {

class GroupConnections {
 public:
  enum class Phase { in_step, out_of_step, connecting };

  GroupConnections(const CellServices& services, OpenCells& cells)
      : services_(services), cells_(cells), default_ranks_(RankSet::all(services.workers.world_size())) {}

  Phase phase() const { return phase_; }
  /// Notes that the collectives of the ranks are not in step any more.
  void lose_step();
  /// Connects all live ranks again, before a cell, where they are out of step and none is in a cell. Serves until they
  /// have answered, or `interrupted` is true. Returns whether they are connected afresh.
  bool connect_if_needed(const std::function<bool()>& interrupted);
  void answered(int rank, const protocol::Regrouped& message);

  /// Returns the ranks of the default group, as the session numbers them; dead ones may be among them.
  const RankSet& default_ranks() const { return default_ranks_; }
  /// Makes `ranks`, which are all that live, the default group from the next connect on.
  void set_default_ranks(const RankSet& ranks);

  /// Returns the generation in which the ranks connect next.
  int64_t next_generation() const { return generation_ + 1; }
  /// Notes that `rank` has waited for others in dist::new_group for a while.
  void waits_in_new_group(int rank);
  void left(int rank) { in_new_group_.erase(rank); }
  /// Notes that the store's process is gone. `how` says in words how it ended.
  void store_ended(const std::string& how);

 private:
  void enter(Phase to);
  bool conclude(const RankSet& asked);
  bool all_answered(const RankSet& asked) const;
  void end_new_groups();

  const CellServices& services_;
  OpenCells& cells_;
  Phase phase_ = Phase::in_step;
  int64_t generation_ = 0;
  std::map<int, protocol::Regrouped> answers_;  // of this generation
  RankSet default_ranks_;
  bool reported_no_store_ = false;
  RankSet in_new_group_;
};

}  // namespace lockstep::shell
