// buckets: how DistributedDataParallel lays out its gradients, and what became of each bucket in the last synchronised step: when
// its gradients were there, when its reduction began and ended, and how much of that backward hid.
//
//   inspect::buckets(net)                     // on every rank, after a few steps
#pragma once
#include <torch/types.h>

#include <chrono>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "ddp/distributed_module.h"
#include "inspectors/exchange/report.h"

namespace lockstep::inspect {

struct BucketsOptions {
  /// What findings and the table call the wrapper.
  TORCH_ARG(std::string, name) = {};
  /// How long to wait for ranks that do not call.
  TORCH_ARG(std::chrono::milliseconds, deadline) = std::chrono::seconds(10);
  TORCH_ARG(bool, publish) = true;
};

/// Of one bucket on one rank: seconds since the last forward announced its backward.
struct BucketTimes {
  double ready = 0;  // the last of its gradients
  std::optional<double> start,
      end;  // of its reduction; unset where a hook reduced it another way, or the log has lost it
};

struct RankBuckets {
  int rank = 0;
  std::vector<BucketTimes> buckets;  // empty before the first synchronised step
  double backward_end = 0;  // the last gradient of all
  /// Of the time in which reductions ran, the part in which backward did, too: 0 to 1. Unset where times are not known.
  std::optional<double> hidden;
  double exposed = 0;  // from the last gradient to the end of the last reduction
};

struct BucketsReport : Report {
  std::vector<ddp::Bucket> buckets;  // in the order of reduction
  std::vector<RankBuckets> ranks;  // by place
  std::optional<int64_t> step;  // that the times are of
};

/// The buckets, a chart of the rank whose reductions ended last, and a line for each rank.
std::ostream& operator<<(std::ostream& out, const BucketsReport& report);

/// Collective over the ranks of the wrapper's group, over connections of its own. Reads c10d's statistics and the collective log;
/// costs training nothing.
BucketsReport buckets(const ddp::DistributedModule& net, const BucketsOptions& options = {});
inline BucketsReport buckets(const ddp::DistributedModule& net, std::string name) {
  return buckets(net, BucketsOptions().name(std::move(name)));
}

}  // namespace lockstep::inspect
