// What one rank tells the others of its last synchronised step, bucket by bucket.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace lockstep::inspect {

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

void to_json(nlohmann::json& json, const RankBuckets& rank);
void from_json(const nlohmann::json& json, RankBuckets& rank);

}  // namespace lockstep::inspect
