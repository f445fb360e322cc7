// grads: are the gradients right? After the reduction they must be equal on all ranks, finite, and the mean of what the ranks
// had; before it (`local`) they must not be equal yet, but be there, finite, and of like size.
//
//   auto watching = inspect::watch_grads(net);    // so that grads knows what was there before the reduction
//   net(x).sum().backward();
//   auto report = inspect::grads(net);            // on every rank, before zero_grad
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "inspectors/exchange/report.h"
#include "inspectors/subject/gradients.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

struct GradsOptions {
  /// What findings call it. Empty: by its kind ("module", "optimizer").
  TORCH_ARG(std::string, name) = {};
  /// Compare what each rank's backward left: of the last backward where a watch_grads has seen it, else what is there now.
  TORCH_ARG(bool, local) = false;
  /// From where on a rank's gradient is an outlier. Four ranks or more: how many deviations (1.4826 times the median absolute
  /// deviation of the logarithms of the norms, at least a quarter) it is from the median. Fewer: how many times larger or smaller
  /// its norm is than the middle one; of two, than the other one.
  TORCH_ARG(double, threshold) = 10;
  /// How many times the mean of the ranks' own the reduced gradients are meant to be, where the program scales them since the
  /// reduction. Unset: once. What clip_grad_norm_ leaves is known by its norm, where that has one or two digits.
  TORCH_ARG(std::optional<double>, factor) = std::nullopt;
  /// The ranks that compare, each of which must call. Unset: those of the wrapper's group, or all that are alive.
  TORCH_ARG(std::optional<RankSet>, ranks) = std::nullopt;
  /// How long to wait for ranks that do not call.
  TORCH_ARG(std::chrono::milliseconds, deadline) = std::chrono::seconds(10);
  /// Bytes of differing chunks that are looked at element by element, as for verify.
  TORCH_ARG(int64_t, detail_bytes) = int64_t{64} << 20;
  /// The training step that findings name, where the object does not know it.
  TORCH_ARG(std::optional<int64_t>, step) = std::nullopt;
  /// Whether findings go to the sink (the session), too.
  TORCH_ARG(bool, publish) = true;
};

/// Collective over the options' ranks, over connections of its own. The report is the same on every rank that took part (times
/// apart; a rank that is out of data in join() gets a note alone). Changes no gradient. Throws std::invalid_argument for a
/// threshold that is not above 1 and a factor that is no finite number but zero, dist::Error when a rank is lost meanwhile.
Report grads_of(const GradientSubject& subject, const GradsOptions& options);

template <typename T>
Report grads(const T& object, const GradsOptions& options = {}) {
  return grads_of(gradients_of(object, options.name()), options);
}

/// The same under a name, as `%grads` calls it.
template <typename T>
Report grads(const T& object, std::string name) {
  return grads(object, GradsOptions().name(std::move(name)));
}

}  // namespace lockstep::inspect
