// grads: are the gradients right? After the reduction they must be equal on all ranks, finite, and the mean over ranks;
// before it (`local`) they need not be equal, but must be present, finite, and of similar size.
//
//   auto watching = inspect::watch_grads(net);    // so that grads knows the gradients before the reduction
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

/// By default the ranks are those of the wrapper's group, or all live ranks without a wrapper.
struct GradsOptions : InspectOptionsOf<GradsOptions> {
  /// Compare gradients before the reduction: those of the last backward if watch_grads observed it, otherwise the
  /// current ones. False by default: after the reduction. Costs nothing.
  TORCH_ARG(bool, local) = false;
  /// When a rank's gradient is an outlier; above 1, 10 by default. Four ranks or more: its distance from the median in
  /// deviations (1.4826 times the median absolute deviation of the logarithms of the norms, at least a quarter). Fewer
  /// ranks: the ratio of its norm to the median (of two ranks, to the other norm) or the inverse. Costs nothing.
  TORCH_ARG(double, threshold) = 10;
  /// The intended ratio of reduced gradients to the mean over ranks, for programs that scale them after the reduction;
  /// finite and not 0. Unset: 1. The result of clip_grad_norm_ is recognised if its bound has one or two digits. Costs
  /// nothing.
  TORCH_ARG(std::optional<double>, factor) = std::nullopt;
  /// As VerifyOptions::detail_bytes; 64 MiB by default.
  TORCH_ARG(int64_t, detail_bytes) = int64_t{64} << 20;
};

/// Collective over the options' ranks, over the inspectors' own connections. The report is the same on every rank that
/// took part, except for times; a rank that is out of data in join() gets only a note. Changes no gradient. Throws
/// dist::ArgumentError for options outside their ranges and for ranks that do not exist, dist::PeerLeft if a rank is
/// lost during the call.
Report grads_of(const GradientSubject& subject, const GradsOptions& options);

template <typename T>
Report grads(const T& object, const GradsOptions& options = {}) {
  return grads_of(gradients_of(object, options.name()), options);
}

/// The same with a name, as `%grads` calls it.
template <typename T>
Report grads(const T& object, std::string name) {
  return grads(object, GradsOptions().name(std::move(name)));
}

}  // namespace lockstep::inspect
