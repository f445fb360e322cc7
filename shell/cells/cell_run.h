// Follows one cell on its ranks, as a state machine: the phase of each rank, when the cell may run, when it is over,
// and how it ended. Pure: messages in, state out. cell_runner.h sends the messages.
//
//   rank:  loading ─→ loaded ─→ running ⇄ waiting ─→ left          dead from anywhere
//                └──→ refused
//   cell:  loading ─→ running ─→ over, or loading ─→ refused
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protocol/rank_set.h"
#include "protocol/worker_messages.h"

namespace lockstep::shell {

class CellRun {
 public:
  enum class Phase { loading, loaded, refused, running, waiting, left, dead };

  /// `id` is the compiler's and the workers' name for the cell, `number` the user's. Without objects to load, all ranks
  /// are loaded at once.
  CellRun(int64_t id, int64_t number, const RankSet& ranks, bool has_objects);

  int64_t id() const { return id_; }
  int64_t number() const { return number_; }
  const RankSet& ranks() const { return ranks_; }

  void loaded(int rank, const protocol::Loaded& message);
  void started();  // Run has been sent to all
  void waiting(int rank, const protocol::Waiting& message);
  void done(int rank, const protocol::Done& message);
  void dead(int rank, const protocol::CellError& error);
  /// Makes ranks that end as interrupted or aborted from now on do so because of the time limit.
  void timed_out() { timed_out_ = true; }

  /// Makes ranks that end as interrupted from now on do so because they kept others waiting: the cell is aborted.
  void stalled() { stalled_ = true; }

  RankSet in(Phase phase) const;
  bool is_in(Phase phase, int rank) const;
  /// Returns ranks that will still send a message: those that load, run or wait.
  RankSet active() const;
  bool is_active(int rank) const;
  bool load_answered() const { return count(Phase::loading) == 0; }
  bool may_run() const { return count(Phase::loaded) == ranks_.size(); }
  bool over() const { return count(Phase::loading) + count(Phase::running) + count(Phase::waiting) == 0; }
  /// Whether nobody can go on: all that are left in the cell wait for ranks that are not coming.
  bool stuck() const { return !over() && count(Phase::loading) + count(Phase::running) == 0; }

  /// Returns what has gone wrong first; none while nothing has.
  std::optional<CellStatus> first_cause() const { return first_cause_; }
  /// Returns the status of the root cause, which is the first one reported: ok, error, interrupted, aborted, timeout or
  /// dead.
  CellStatus status() const;
  std::map<int, CellStatus> rank_status() const;
  std::map<int, double> run_ms() const;
  std::map<int, int64_t> steps_done() const;
  std::map<int, protocol::CellError> errors() const;
  const std::map<int, protocol::Waiting>& waits() const { return waits_; }
  /// Returns why ranks could not load the cell: message → ranks.
  std::map<std::string, RankSet> refusals() const;

 private:
  struct Rank {
    Phase phase = Phase::loading;
    std::optional<CellStatus> status;  // once it has left
    double run_ms = 0;
    int64_t steps_done = 0;
    std::optional<protocol::CellError> error;
    std::string refusal;
  };
  Rank& at(int rank) { return states_.at(rank); }
  size_t count(Phase phase) const { return counts_[static_cast<size_t>(phase)]; }
  void enter(Rank& rank, Phase phase);
  void note_cause(CellStatus status);

  int64_t id_, number_;
  RankSet ranks_;
  std::map<int, Rank> states_;
  static constexpr size_t kPhases = static_cast<size_t>(Phase::dead) + 1;
  std::array<size_t, kPhases> counts_ = {};  // ranks by phase: each of their messages asks whether it was the last
  std::map<int, protocol::Waiting> waits_;
  std::optional<CellStatus> first_cause_;
  bool timed_out_ = false, stalled_ = false;
};

}  // namespace lockstep::shell
