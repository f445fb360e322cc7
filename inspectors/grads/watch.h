// watch_grads observes each gradient of this rank before the reduction. A few numbers are kept for each parameter when
// backward has accumulated its gradient. From them `grads` derives whether the reduced gradient is the mean over ranks,
// which rank a NaN comes from, and whose gradients do not change from step to step.
//
//   auto watching = inspect::watch_grads(net);    // on every rank, as long as `watching` lives
//   loss.backward();
//   inspect::grads(net);
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/gradients.h"

namespace lockstep::inspect {

/// Eight weighted sums of a tensor's elements, each over at most 64 of them. Linear: the sketch of a mean is the mean
/// of the sketches.
using Sketch = std::array<double, 8>;
/// Takes dense tensors of real floating-point types (zeros for others) in the order of memory: layouts must be equal.
Sketch sketch_of(const at::Tensor& tensor);

/// A gradient after backward, before the reduction.
struct ObservedGradient {
  Fingerprint mark;
  Sketch sketch{};
  int64_t same_for = 0;  // the number of steps for which it has been the same bit by bit
  bool on_used = false;  // backward added to a gradient that an optimizer had used in an earlier step
  bool stepped = false;  // the parameter has changed since: an optimizer has used the gradient
  bool collective_since = false;  // this rank has begun a collective since: the current gradient may be reduced
};

/// Has all gradients of a subject. A step is the time between two changes of the parameters.
struct ObservedGradients {
  int64_t steps = 0;  // with a backward
  bool sync_wanted = true;  // of a wrapper: false if the last backward ran under no_sync
  int64_t passes = 0;  // backward passes of the last step: its micro-batches
  std::vector<std::optional<ObservedGradient>> gradients;  // by parameter; nothing if the last step had none
};

class GradObserver;

/// Observes during its lifetime. Costs one read of each gradient in backward, and one more for gradients that were
/// zeroed in place.
class [[nodiscard]] GradWatch {
 public:
  explicit GradWatch(const GradientSubject& subject);
  ~GradWatch();
  GradWatch(GradWatch&&) noexcept = default;
  GradWatch& operator=(GradWatch&&) = delete;

  struct Cost {
    int64_t gradients = 0;  // observed
    double seconds = 0;
  };
  Cost cost() const;

 private:
  std::shared_ptr<GradObserver> observer_;
};

/// Changes no gradient, keeps no graph alive. Local, but `grads` needs it on every rank.
template <typename T>
GradWatch watch_grads(const T& object) {
  return GradWatch(gradients_of(object, ""));
}

/// Returns what this process has observed; nothing if some parameter of `subject` with a gradient is not observed.
std::optional<ObservedGradients> gradients_seen(const GradientSubject& subject);

}  // namespace lockstep::inspect
