// buckets shows how DistributedDataParallel lays out its gradients, and the times of each bucket in the last
// synchronised step: when its gradients were ready, when its reduction began and ended, how much of it backward hid.
//
//   inspect::buckets(net)                     // on every rank, after a few steps
#pragma once
#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp/distributed_module.h"
#include "inspectors/exchange/report.h"

namespace lockstep::inspect {

/// Describes one bucket on one rank, in seconds since the end of forward.
struct BucketTimes {
  double ready = 0;  // its last gradient
  /// Times of its reduction; unset if a hook reduced it in another way, or if the log does not have it any more.
  std::optional<double> start, end;
};

struct RankBuckets {
  int rank = 0;
  std::vector<BucketTimes> buckets;  // empty before the first synchronised step
  double backward_end = 0;  // the last gradient of all buckets
  /// Part of the time of reductions in which backward ran, too: 0 to 1. Unset if times are not known.
  std::optional<double> hidden;
  double exposed = 0;  // from the last gradient to the end of the last reduction
  /// Whether the device's times of the last step were not recorded; they are from now on.
  bool recording_began = false;
};

void to_json(nlohmann::json& json, const RankBuckets& rank);
void from_json(const nlohmann::json& json, RankBuckets& rank);

/// By default the ranks are those of the wrapper's group.
struct BucketsOptions : InspectOptionsOf<BucketsOptions> {};

struct BucketsReport : Report {
  std::vector<ddp::Bucket> buckets;  // in the order of reduction
  std::vector<RankBuckets> ranks;  // by rank index
  std::optional<int64_t> step;  // to which the times belong
};

/// Prints the buckets, a chart of the rank whose reductions ended last, and a line for each rank.
std::ostream& operator<<(std::ostream& out, const BucketsReport& report);
/// Returns the report as the text of a JSON object, with a chart of it (docs/events.md).
std::string report_data(const BucketsReport& report);

/// Collective over the ranks of the wrapper's group, over the inspectors' own connections. On the CPU reads c10d's
/// statistics and the collective log; costs training nothing. On a device the times are those of its streams, recorded
/// from the first call on (two events for each reduction and each step); this waits for the device, the steps do not.
/// Throws dist::ArgumentError for ranks that do not exist.
BucketsReport buckets(const ddp::DistributedModule& net, const BucketsOptions& options = {});
inline BucketsReport buckets(const ddp::DistributedModule& net, std::string name) {
  return buckets(net, BucketsOptions().name(std::move(name)));
}

}  // namespace lockstep::inspect
