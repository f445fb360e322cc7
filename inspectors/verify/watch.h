// watch: verify again and again while training runs, each so many steps, so that a drift is found within the steps in
// which it happened.
//
//   auto watching = inspect::watch(net, 10);      // as long as `watching` lives
//   for (…) { …; inspect::step(optimizer); }      // optimizer.step(), counted
//
// Steps are those of the wrapper where the object is one, or a module that one lives around: each synchronised
// backward. Of other objects those of inspect::step; and where nobody calls that, a step is over when a collective
// begins and parameters have been changed since the last one did.
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
  struct State;
  std::shared_ptr<State> state_;
};

/// Every rank watches, and steps equally often; ranks are the wrapper's where the options name none. A difference is
/// reported once, with the steps between which it came; again when the replicas have been equal meanwhile. `object`
/// must outlive the result. Throws dist::ArgumentError for `every` < 1.
template <typename T>
Watch watch(const T& object, int64_t every, VerifyOptions options = {}) {
  return Watch([&object, name = options.name()] { return subject_of(object, name); }, every, std::move(options));
}

}  // namespace lockstep::inspect
