// The values of a candidate that are judged one by one, and how far each is from its part of the reference.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "inspectors/compare/parts.h"
#include "inspectors/compare/runs.h"

namespace lockstep::inspect::compare {

/// A wrong value is taken for the part that is nearer to it than the next one by this factor. Parts that a value has
/// nothing to do with are as far from it as from each other.
constexpr double kClearlyNearer = 0.5;

/// Says where samples are in the batch of the reference.
using Rows = std::map<std::pair<int, uint32_t>, std::vector<int64_t>>;  // by rank and micro-batch of the candidate

/// Elements in row-major order.
struct Elements {
  Element element = Element::float32;
  std::vector<std::byte> bytes;
};

/// A piece, or several that are a value only together.
struct JudgedValue {
  RankSet ranks;
  int rank = 0;  // the first of them
  uint32_t micro_batch = 0;
  const Piece* piece = nullptr;  // the first of them
  Summary summary;  // of all of them, with their scale
  bool is_sum = false;  // over micro-batches and groups of samples
  double error = 0;  // relative to the part of the reference
  Summary part;  // the one that is nearest
  bool fits = false;  // there is a part of this shape
  double resolution = 0;  // of sums of several pieces, which files have rounded: nearer than this, they are the same
  /// What the rank should have here: the part of the reference, in the rank's own scale. Set where CandidateStep asks
  /// for it, the piece is a value by itself, and it is clear which part it should be.
  std::optional<Elements> expected;
};

/// The reference's value of a key.
struct ReferenceValue {
  std::vector<Whole> micro_batches;
  int64_t samples = 0;
  double norm = 0;
};

struct CandidateStep {
  const Layout& layout;
  const Rows& rows;
  double scale = 1;  // of losses and their gradients: between a rank's and those of the global batch
  std::optional<double> tolerance = std::nullopt;  // set: judged_values() fills in JudgedValue::expected
};

/// Returns the values of `pieces`, compared with the reference.
std::vector<JudgedValue> judged_values(const PieceKey& key, const std::vector<RankPiece>& pieces,
                                       const ReferenceValue& reference, const CandidateStep& step);

}  // namespace lockstep::inspect::compare
