// grads checks that the gradients are right. After the reduction they must be equal on all ranks, finite, and the mean
// over ranks; before it (`local`) they need not be equal, but must be present, finite, and of similar size.
//
//   auto watching = inspect::watch_grads(net);    // so that grads knows the gradients before the reduction
//   net(x).sum().backward();
//   auto report = inspect::grads(net);            // on every rank, before zero_grad
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "inspectors/exchange/report.h"
#include "inspectors/subject/gradients.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

/// By default the ranks are those of the wrapper's group, or all live ranks without a wrapper.
struct GradsOptions : InspectOptionsOf<GradsOptions> {
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_FIELD
#include "inspectors/options/grads.def"
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

/// Takes a name as well, as `%grads` calls it.
template <typename T>
Report grads(const T& object, std::string name) {
  return grads(object, GradsOptions().name(std::move(name)));
}

}  // namespace lockstep::inspect
