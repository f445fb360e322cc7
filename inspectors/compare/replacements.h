// Replacements are what the values of a candidate should be. In a run with them, each value is replaced once it is
// recorded. Then no difference follows from another one, so all are found. Each rank has a recording of replacements.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include "inspectors/compare/runs.h"
#include "inspectors/compare/values.h"

namespace lockstep::inspect::compare {

/// The words of a recorder's note after the name of a value that is not replaced.
constexpr const char* kNotReplaced =
    " could not be replaced: it is sparse, shares memory with itself, a parameter or a buffer, or is computed once "
    "more "
    "after several forward passes or calls";

/// Writes the recordings of replacements, rank-0.rec, rank-1.rec, … Values have the dtype of the reference, or float64
/// where they are scaled. There is none where it is not clear what a rank should have.
class ReplacementWriter {
 public:
  /// Makes `folder` and a file for each rank, with the samples that it was given. Throws Error.
  ReplacementWriter(const std::string& folder, const Run& reference, const Run& candidate);
  void add(const PieceKey& key, const JudgedValue& value);
  /// Completes the files. Throws Error.
  void close();

 private:
  struct Rank {
    std::unique_ptr<RecordingWriter> writer;
    std::map<std::string, uint32_t> names;
  };
  std::map<int, Rank> ranks_;
};

/// Whether `replacements` are parts of this reference.
bool are_of(const Run& replacements, const Run& reference);

/// The replacements of one rank.
class Replacements {
 public:
  /// Throws what read_recording() throws.
  explicit Replacements(const std::string& path);
  Replacements(const Replacements&) = delete;
  Replacements& operator=(const Replacements&) = delete;
  /// Returns the replacement of a piece that a rank has recorded; null: there is none of its shape.
  const Piece* find(const std::string& name, const Piece& recorded) const;
  const Recording& recording() const { return recording_; }
  /// Throws Error where the run before this one was given other samples: the training differs from run to run then.
  void check_samples(const Samples& samples) const;

 private:
  using Key = std::tuple<uint32_t, PieceKind, std::string, uint32_t, uint32_t>;  // step, kind, name, micro-batch, call
  Recording recording_;
  std::map<Key, const Piece*> pieces_;
};

}  // namespace lockstep::inspect::compare
