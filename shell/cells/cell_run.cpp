#include "shell/cells/cell_run.h"

namespace lockstep::shell {

CellRun::CellRun(int64_t id, int64_t number, const RankSet& ranks, bool has_objects)
    : id_(id), number_(number), ranks_(ranks) {
  const Phase first = has_objects ? Phase::loading : Phase::loaded;
  for (int rank : ranks) states_[rank].phase = first;
  counts_[static_cast<size_t>(first)] = states_.size();
}

void CellRun::enter(Rank& rank, Phase phase) {
  --counts_[static_cast<size_t>(rank.phase)];
  ++counts_[static_cast<size_t>(phase)];
  rank.phase = phase;
}

void CellRun::loaded(int rank, const protocol::Loaded& message) {
  if (at(rank).phase != Phase::loading) return;
  enter(at(rank), message.ok ? Phase::loaded : Phase::refused);
  at(rank).refusal = message.message;
}

void CellRun::started() {
  for (auto& [rank, state] : states_)
    if (state.phase == Phase::loaded) enter(state, Phase::running);
}

void CellRun::waiting(int rank, const protocol::Waiting& message) {
  if (at(rank).phase != Phase::running && at(rank).phase != Phase::waiting) return;
  enter(at(rank), Phase::waiting);
  waits_[rank] = message;
}

void CellRun::done(int rank, const protocol::Done& message) {
  Rank& state = at(rank);
  if (state.phase == Phase::dead) return;
  enter(state, Phase::left);
  state.run_ms = message.run_ms;
  state.steps_done = message.steps_done;
  state.status = message.status;
  state.error = message.error;
  waits_.erase(rank);
  if (timed_out_ && (message.status == CellStatus::interrupted || message.status == CellStatus::aborted)) {
    state.status = CellStatus::timeout;
    state.error.reset();
  }
  if (state.status == CellStatus::interrupted) {
    state.error.reset();
    if (stalled_) state.status = CellStatus::aborted;
  }
  const bool consequence = state.status == CellStatus::aborted || (state.error && !state.error->root_cause);
  if (state.status != CellStatus::ok && !consequence) note_cause(*state.status);
}

void CellRun::dead(int rank, const protocol::CellError& error) {
  Rank& state = at(rank);
  enter(state, Phase::dead);
  state.status = CellStatus::dead;
  state.error = error;
  waits_.erase(rank);
  // It was ended because of that.
  note_cause(timed_out_ ? CellStatus::timeout : stalled_ ? CellStatus::aborted : CellStatus::dead);
}

void CellRun::note_cause(CellStatus status) {
  if (!first_cause_) first_cause_ = status;
}

RankSet CellRun::in(Phase phase) const {
  RankSet result;
  if (count(phase) == 0) return result;
  for (const auto& [rank, state] : states_)
    if (state.phase == phase) result.insert(rank);
  return result;
}

bool CellRun::is_in(Phase phase, int rank) const {
  const auto state = states_.find(rank);
  return state != states_.end() && state->second.phase == phase;
}

bool CellRun::is_active(int rank) const {
  return is_in(Phase::loading, rank) || is_in(Phase::running, rank) || is_in(Phase::waiting, rank);
}

RankSet CellRun::active() const { return in(Phase::loading) | in(Phase::running) | in(Phase::waiting); }

CellStatus CellRun::status() const {
  if (first_cause_) return *first_cause_;
  // There are consequences alone: ranks that were freed show that the cell hung.
  CellStatus status = CellStatus::ok;
  for (const auto& [rank, state] : states_)
    if (status != CellStatus::aborted && state.status && state.status != CellStatus::ok) status = *state.status;
  return status;
}

std::map<int, CellStatus> CellRun::rank_status() const {
  std::map<int, CellStatus> result;
  for (const auto& [rank, state] : states_)
    if (state.status) result[rank] = *state.status;
  return result;
}

std::map<int, double> CellRun::run_ms() const {
  std::map<int, double> result;
  for (const auto& [rank, state] : states_)
    if (state.phase == Phase::left) result[rank] = state.run_ms;
  return result;
}

std::map<int, int64_t> CellRun::steps_done() const {
  std::map<int, int64_t> result;
  for (const auto& [rank, state] : states_)
    if (state.phase != Phase::dead) result[rank] = state.steps_done;
  return result;
}

std::map<int, protocol::CellError> CellRun::errors() const {
  std::map<int, protocol::CellError> result;
  for (const auto& [rank, state] : states_)
    if (state.error) result[rank] = *state.error;
  return result;
}

std::map<std::string, RankSet> CellRun::refusals() const {
  std::map<std::string, RankSet> result;
  for (const auto& [rank, state] : states_)
    if (state.phase == Phase::refused) result[state.refusal].insert(rank);
  return result;
}

}  // namespace lockstep::shell
