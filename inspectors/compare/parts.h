// Cuts the part that a piece of the candidate has to equal out of a value of the reference.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "inspectors/compare/sketch.h"

namespace lockstep::inspect::compare {

/// A value of the reference, of all of its micro-batches.
struct Whole {
  Element element = Element::float32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  int64_t samples = 0;  // of all micro-batches; 0: the value has nothing to do with samples
};

/// Puts values of micro-batches one after the other along a dimension. Returns nothing where their other dimensions or
/// dtypes differ.
std::optional<Whole> concatenated(const std::vector<Whole>& parts, size_t dimension);

/// One way in which a piece can be a part of the whole.
struct Reading {
  std::vector<std::vector<int64_t>> indices;  // for each dimension, those of the whole
  bool is_by_sample = false;  // one dimension is that of the samples
  int shard = -1;  // which n-th of a dimension the piece is taken to be; -1: it has its place, or the whole
  int64_t blocks = 0;  // into which that dimension is divided; the piece has the n-th of each
};

/// Holds what is known of a piece.
struct PiecePlace {
  const Box& box;
  bool is_placed = false;  // the box is the piece's place in the whole, but for samples
  int64_t samples = 0;  // in its micro-batch
  const std::vector<int64_t>* rows = nullptr;  // of these samples in the reference; null: they play no part
  int place = 0;  // of its rank among the ranks with the same samples
};

/// Returns the ways in which a piece can be a part; none: its shape does not fit. An n-th of a dimension may also be the
/// n-ths of two or three blocks of it, as where q, k and v are one weight. `other_shards`: those of ranks at other
/// places instead of the rank's own.
std::vector<Reading> readings_of(const Whole& whole, const PiecePlace& piece, bool other_shards = false);

/// Copies the elements of a part, row-major.
std::vector<std::byte> elements_of_part(const Whole& whole, const Reading& reading);

/// Sketches a part of the whole by the indices that a piece with this box has.
Summary sketch_of_part(const Whole& whole, const Reading& reading, const Box& box);

/// Returns the dimension of samples of a value in one micro-batch; nothing: none fits.
std::optional<size_t> sample_dimension(const std::vector<int64_t>& a, int64_t samples_a, const std::vector<int64_t>& b,
                                       int64_t samples_b);

}  // namespace lockstep::inspect::compare
