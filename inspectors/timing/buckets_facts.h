// The facts that ranks exchange about their last synchronised step, bucket by bucket.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

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

}  // namespace lockstep::inspect
