// verify of an object whose parts are divided among the ranks (FullyShardedDataParallel, DTensor): what should be equal
// is compared among the ranks where it should be, and a part that one rank has for itself is searched for NaN and Inf.
// The `ok` says what was not compared.
//
//   ShardedSubject subject{.common = …, .groups = {{.ranks = {0, 2}, .subject = …}, {.ranks = {0}, .subject = …}}};
//   inspect::verify_sharded(subject, options);       // on every rank
#pragma once
#include <vector>

#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

/// Parts that all of `ranks` should have alike: the replicas of a device mesh. A single rank has them for itself.
struct ReplicaGroup {
  RankSet ranks;  // among them the calling one
  Subject subject;
};

struct ShardedSubject {
  /// What should be equal on all ranks: parameters that are not divided, and of those that are how they are divided, as
  /// values.
  Subject common;
  std::vector<ReplicaGroup> groups;  // of the calling rank, in any order; a set of ranks occurs once
};

/// Collective over the options' ranks; as verify_subject. Without groups it is verify_subject.
Report verify_sharded(const ShardedSubject& subject, const VerifyOptions& options);

}  // namespace lockstep::inspect
