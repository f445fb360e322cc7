#include "worker/process/run_state.h"

#include <chrono>
#include <stdexcept>
#include <string>

namespace lockstep::worker {
namespace {

bool may_follow(RankState from, RankState to) {
  switch (from) {
    case RankState::starting:
      return to == RankState::idle || to == RankState::ending;
    case RankState::idle:
      return to == RankState::loading || to == RankState::running || to == RankState::regrouping ||
             to == RankState::ending;
    case RankState::loading:
    case RankState::running:
    case RankState::regrouping:
      return to == RankState::idle;
    case RankState::ending:
    case RankState::waiting:
    case RankState::dead:
      return false;
  }
  return false;
}

}  // namespace

void RunState::enter(RankState to) {
  const RankState from = phase_;
  if (!may_follow(from, to))
    throw std::logic_error("the run thread can't go from " + std::string(to_string(from)) + " to " +
                           std::string(to_string(to)));
  since_ns_ = now_ns();
  phase_ = to;
}

void RunState::begin_cell(int64_t cell, int64_t number) {
  cell_ = cell;
  number_ = number;
  line_ = 0;
  code_ = 0;
  enter(RankState::running);
}

int64_t RunState::now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

RunState& run_state() {
  static RunState state;
  return state;
}

}  // namespace lockstep::worker
