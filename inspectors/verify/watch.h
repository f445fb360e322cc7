// watch verifies every so many steps while training runs, so that a difference is found near the step in which it
// appeared.
//
//   auto watching = inspect::watch(net, 10);      // as long as `watching` lives
//   for (…) { …; inspect::step(optimizer); }      // optimizer.step(), counted
//
// For a wrapper, or a module that has one, a step is a synchronised backward. For other objects it is a call of
// inspect::step; without such calls, a step ends when a collective begins and parameters have changed since the last
// one.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "inspectors/trace/steps.h"
#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

struct WatchCost {
  int64_t steps = 0;
  int64_t checks = 0;
  double seconds = 0;  // spent in checks
  double of_seconds = 0;  // since the watch began
};

/// Checks during its lifetime. Belongs to the thread that made it, which runs the steps.
class [[nodiscard]] Watch {
 public:
  Watch(std::function<Subject()> subject, int64_t every, VerifyOptions options);
  /// Does the same with `verify` as the check, for an object whose parts are not all compared on all ranks. `found`
  /// gets the report of a difference, on every rank, when the lowest one publishes it. `steps_others`: the optimizer
  /// whose steps are counted has none of the object's parameters.
  Watch(std::function<Subject()> subject, int64_t every, VerifyOptions options,
        std::function<Report(const VerifyOptions&)> verify, std::function<void(const Report&)> found,
        bool steps_others);
  ~Watch();
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch&&) = delete;
  WatchCost cost() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Called on every rank; all ranks run the same number of steps. By default the ranks are those of the wrapper. A
/// difference is reported once, with the steps between which it appeared, and again after the replicas were equal.
/// Parameters that the first ten steps have not changed are a note. A rank that does not come to a check is named;
/// after two such checks in a row nothing is compared any more.
/// Objects on a device for which there are functions (inspectors/device/functions.h) are compared a step late, so that
/// the host does not wait for the device: a difference after the last step is not seen. `object` must outlive the
/// result. Throws dist::ArgumentError for `every` < 1.
template <typename T>
Watch watch(const T& object, int64_t every, VerifyOptions options = {}) {
  std::string name = options.name();  // of which `options` may be moved before the other arguments are made
  return Watch([&object, name = std::move(name)] { return subject_of(object, name); }, every, std::move(options));
}

}  // namespace lockstep::inspect
