// The recordings of all ranks of one run, and the pieces in them that belong together.
#pragma once
#include <compare>
#include <map>
#include <string>
#include <vector>

#include "inspectors/compare/recording.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect::compare {

struct Run {
  std::vector<Recording> ranks;  // by rank
  int64_t steps() const;  // that every rank has recorded to their end
};

/// Reads the recordings rank-0.rec, rank-1.rec, … of a folder. Throws Error where there is none or a rank's is missing,
/// and what read_recording() throws.
Run read_run(const std::string& folder);

/// Identifies a value of which several ranks and micro-batches have pieces. The names are those of the model.
struct PieceKey {
  uint32_t step = 0;
  PieceKind kind = PieceKind::initial;
  std::string name;
  uint32_t call = 0;
  auto operator<=>(const PieceKey&) const = default;
};

struct RankPiece {
  int rank = 0;
  const Piece* piece = nullptr;
};

/// The pieces of a run, which has to outlive this.
class Pieces {
 public:
  explicit Pieces(const Run& run);
  /// Returns the keys in the order in which rank 0 has computed the pieces first.
  const std::vector<PieceKey>& order() const { return order_; }
  /// Returns the pieces of a key; none where the run has none.
  const std::vector<RankPiece>& of(const PieceKey& key) const;
  /// Returns the type of the module of this name; empty: none is known.
  const std::string& type_of(const std::string& name) const;

 private:
  std::map<PieceKey, std::vector<RankPiece>> pieces_;
  std::map<std::string, std::string> types_;
  std::vector<PieceKey> order_;
};

/// Describes how the ranks of a run share the samples of a step.
struct Layout {
  /// Ranks of one group have been given the same samples. In ascending order of their first ranks.
  std::vector<RankSet> groups;
  size_t micro_batches = 1;  // of the rank that has the most
  /// The samples by rank and micro-batch; none where the model is given no tensor.
  std::map<std::pair<int, uint32_t>, const std::vector<uint64_t>*> batches;

  int data_parallel() const { return static_cast<int>(groups.size()); }
  const RankSet& group_of(int rank) const;
  /// Returns the place of a rank in its group.
  int place_of(int rank) const;
  /// Returns the ranks that have this rank's place in their groups: those whose gradients are averaged.
  RankSet across_groups(int rank) const;
  size_t samples_of(int rank, uint32_t micro_batch) const;
};

Layout layout_of(const Run& run, uint32_t step);

}  // namespace lockstep::inspect::compare
