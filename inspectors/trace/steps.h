// Counts the steps of a training loop that has no wrapper to count them: inspect::step(optimizer).
#pragma once
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/dist.h"

namespace lockstep::inspect {

/// Counts a training step of this thread, and runs the checks of watches that are due. Collective over the ranks of
/// such a watch.
void count_step();
/// Returns the steps counted so far on this thread.
int64_t counted_steps();

/// During its lifetime the steps of this thread are not counted and no watch checks: for an inspector that runs a step
/// and restores the state.
class [[nodiscard]] UncountedSteps {
 public:
  UncountedSteps();
  ~UncountedSteps();
  UncountedSteps(const UncountedSteps&) = delete;
  UncountedSteps& operator=(const UncountedSteps&) = delete;
};

/// Calls optimizer.step() and counts the step.
template <typename Optimizer, typename... Arguments>
auto step(Optimizer& optimizer, Arguments&&... arguments) {
  if constexpr (std::is_void_v<decltype(optimizer.step(std::forward<Arguments>(arguments)...))>) {
    optimizer.step(std::forward<Arguments>(arguments)...);
    count_step();
  } else {
    auto loss = optimizer.step(std::forward<Arguments>(arguments)...);
    count_step();
    return loss;
  }
}

/// The process group that a step reduces over, as the log of the program has it.
struct StepGroup {
  dist::Group handle;  // null: there is none
  std::string name;
  std::vector<int> ranks;  // of the default group, by group rank
};
/// Returns a group of dist::, the default group for null; without a name where dist:: is not initialised.
StepGroup group_of_dist(const dist::Group& group);

}  // namespace lockstep::inspect
