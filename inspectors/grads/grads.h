// grads: are the gradients right? After the reduction they must be equal on all ranks, finite, and the mean of what the
// ranks had; before it (`local`) they must not be equal yet, but be there, finite, and of like size.
//
//   auto watching = inspect::watch_grads(net);    // so that grads knows what was there before the reduction
//   net(x).sum().backward();
//   auto report = inspect::grads(net);            // on every rank, before zero_grad
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "inspectors/exchange/options.h"
#include "inspectors/exchange/report.h"
#include "inspectors/subject/gradients.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// The ranks are those of the wrapper's group where none are given, or all that are alive.
struct GradsOptions : InspectOptionsOf<GradsOptions> {
  /// Compare what each rank's backward left: of the last backward where a watch_grads has seen it, else what is there
  /// now. False by default: what is there after the reduction. Costs nothing.
  TORCH_ARG(bool, local) = false;
  /// From where on a rank's gradient is an outlier; above 1, 10 by default. Four ranks or more: how many deviations
  /// (1.4826 times the median absolute deviation of the logarithms of the norms, at least a quarter) it is from the
  /// median. Fewer: how many times larger or smaller its norm is than the middle one; of two, than the other one. Costs
  /// nothing.
  TORCH_ARG(double, threshold) = 10;
  /// How many times the mean of the ranks' own the reduced gradients are meant to be, where the program scales them
  /// since the reduction; finite and not 0. Unset: once. What clip_grad_norm_ leaves is known by its norm, where that
  /// has one or two digits. Costs nothing.
  TORCH_ARG(std::optional<double>, factor) = std::nullopt;
  /// Bytes of differing chunks that are compared element by element, as for verify; 64 MiB by default.
  TORCH_ARG(int64_t, detail_bytes) = int64_t{64} << 20;
};

/// Collective over the options' ranks, over the inspectors' own connections. The report is the same on every rank that
/// took part (times apart; a rank that is out of data in join() gets a note alone). Changes no gradient. Throws
/// dist::ArgumentError for options outside their ranges and for ranks that are not there, dist::PeerLeft when a rank is
/// lost meanwhile.
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
