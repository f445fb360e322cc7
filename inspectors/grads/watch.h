// watch_grads: what each gradient was on this rank before anything reduced it. Of each parameter a few numbers are
// kept, taken when backward has added up its gradient: enough for `grads` to say whether what is there now is the mean
// of the ranks' own, who brought the NaN in, and whose gradients do not change from step to step.
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

/// Eight weighted sums of a tensor's elements, each of at most 64 of them. Linear: the sketch of a mean is the mean of
/// sketches.
using Sketch = std::array<double, 8>;
/// Of a dense tensor of a real floating-point type; zeros for others. In the order of memory, so layouts must be alike.
Sketch sketch_of(const at::Tensor& tensor);

/// A gradient as backward left it.
struct GradientSeen {
  Fingerprint mark;
  Sketch sketch{};
  int64_t same_for = 0;  // steps in a row in which it was, bit for bit, what it had been in the step before
  // There was a gradient already, left over from a step in which an optimizer had used it, and backward added to it.
  bool on_used = false;
  bool stepped = false;  // the parameter has been changed since: an optimizer has used the gradient
  bool collective_since = false;  // this rank has begun a collective since: what is there now may be reduced
};

/// What an observer knows of a whole model.
struct GradientsSeen {
  int64_t steps = 0;  // in which there was a backward: what lies between two changes of the parameters
  bool sync_wanted = true;  // of a wrapper: false where the last backward ran within no_sync
  int64_t passes = 0;  // backward passes of the last step: its micro-batches
  std::vector<std::optional<GradientSeen>>
      gradients;  // by place in the subject; nothing where the last step brought none
};

class GradObserver;

/// Observes while it lives. What it costs is one read of each gradient in backward, and one more of gradients that were
/// zeroed in place.
class [[nodiscard]] GradWatch {
 public:
  explicit GradWatch(const GradientSubject& subject);
  ~GradWatch();
  GradWatch(GradWatch&&) noexcept = default;
  GradWatch& operator=(GradWatch&&) = delete;

  struct Cost {
    int64_t gradients = 0;  // seen
    double seconds = 0;
  };
  Cost cost() const;

 private:
  std::shared_ptr<GradObserver> observer_;
};

/// Local; to be of use, on every rank. Changes no gradient, keeps no graph alive.
template <typename T>
GradWatch watch_grads(const T& object) {
  return GradWatch(gradients_of(object, ""));
}

/// What the observers of this process know of `subject`; nothing where one of its parameters that need a gradient is
/// not observed.
std::optional<GradientsSeen> gradients_seen(const GradientSubject& subject);

}  // namespace lockstep::inspect
