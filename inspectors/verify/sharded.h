// Runs verify of an object whose parts are divided among the ranks (FullyShardedDataParallel, DTensor): what should be
// equal is compared among the ranks where it should be, and a part that one rank has for itself is searched for NaN and
// Inf. The `ok` says what was not compared.
//
//   ShardedSubject subject{.common = …, .parts = {{.item = …, .place = "Shard(0), part 1 of 2", .mesh = {0, 1}}}};
//   inspect::verify_sharded(subject, options);       // on every rank
#pragma once
#include <string>
#include <vector>

#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

/// Describes what the calling rank has of a divided tensor.
struct Part {
  Item item;
  /// How the tensor is divided, and which part this is. Ranks whose parts have the same name and place should have them
  /// alike.
  std::string place;
  RankSet mesh;  // the ranks among which the tensor is divided and replicated: what one gradient reduction covers
};

struct ShardedSubject {
  /// What should be equal on all ranks: parameters that are not divided, and of those that are how they are divided, as
  /// values.
  Subject common;
  std::vector<Part> parts;
  int64_t elsewhere = 0;  // divided tensors whose mesh does not have the calling rank
};

/// Collective over the options' ranks; as verify_subject. Ranks that have a part alike are found by its name and place,
/// also if no mesh has them all.
Report verify_sharded(const ShardedSubject& subject, const VerifyOptions& options);

}  // namespace lockstep::inspect
