// watch: verify again and again while training runs, each so many steps, so that a drift is found within the steps in which
// it happened.
//
//   auto watching = inspect::watch(net, 10);      // as long as `watching` lives
//   for (…) { …; inspect::step(optimizer); }      // optimizer.step(), counted
//
// Steps are those of the wrapper where the object is one, or a module that one lives around: each synchronised backward. Of
// other objects those of inspect::step; and where nobody calls that, a step is over when a collective begins and parameters
// have been changed since the last one did.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

struct WatchCost {
  int64_t steps = 0;
  int64_t checks = 0;
  double seconds = 0;  // in checks
  double of_seconds = 0;  // since the watch began
};

/// Checks while it lives. Belongs to the thread that made it: the one that steps.
class [[nodiscard]] Watch {
 public:
  Watch(std::function<Subject()> subject, int64_t every, VerifyOptions options);
  ~Watch();
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch&&) = delete;
  WatchCost cost() const;

 private:
  struct Steps;
  struct State;
  std::shared_ptr<State> state_;
  friend void count_step();
  friend int64_t counted_steps();
  friend class UncountedSteps;
};

/// Every rank watches, and steps equally often; ranks are the wrapper's where the options name none. A difference is told once,
/// with the steps between which it came; again when the replicas have been equal meanwhile. `object` must outlive the result.
/// Throws std::invalid_argument for `every` < 1.
template <typename T>
Watch watch(const T& object, int64_t every, VerifyOptions options = {}) {
  return Watch([&object, name = options.name()] { return subject_of(object, name); }, every, std::move(options));
}

/// One training step is done: watches that are due check. Collective over their ranks when one is due.
void count_step();
/// Steps counted so far on this thread.
int64_t counted_steps();

/// While it lives, the steps of this thread are not counted and no watch checks: for a tool that runs a step and takes it back.
class [[nodiscard]] UncountedSteps {
 public:
  UncountedSteps();
  ~UncountedSteps();
  UncountedSteps(const UncountedSteps&) = delete;
  UncountedSteps& operator=(const UncountedSteps&) = delete;
};

/// optimizer.step(), counted.
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

}  // namespace lockstep::inspect
