#include "inspectors/compare/parts.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace lockstep::inspect::compare {
namespace {

std::vector<int64_t> range(int64_t from, int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), from);
  return indices;
}

bool are_consecutive(const std::vector<int64_t>& indices) {
  return std::ranges::adjacent_find(indices, [](int64_t a, int64_t b) { return b != a + 1; }) == indices.end();
}

/// Whether dimension `d` has the same number of rows for each sample.
bool is_of_samples(int64_t a, int64_t samples_a, int64_t b, int64_t samples_b) {
  return samples_a > 0 && samples_b > 0 && a % samples_a == 0 && b % samples_b == 0 && a > 0 &&
         a / samples_a == b / samples_b;
}

/// Copies the elements at `indices`, row-major.
struct Cut {
  const Whole& whole;
  const Reading& reading;
  std::vector<size_t> stride;  // in bytes
  size_t run_dimension = 0;  // from here on, indices lie together
  size_t run_bytes = 0;
  std::vector<std::byte> bytes;

  void from(size_t dimension, size_t at) {
    if (dimension == run_dimension) {
      const size_t first =
          dimension < stride.size() ? static_cast<size_t>(reading.indices[dimension].front()) * stride[dimension] : 0;
      bytes.insert(bytes.end(), whole.bytes.begin() + static_cast<std::ptrdiff_t>(at + first),
                   whole.bytes.begin() + static_cast<std::ptrdiff_t>(at + first + run_bytes));
      return;
    }
    for (const int64_t index : reading.indices[dimension])
      from(dimension + 1, at + static_cast<size_t>(index) * stride[dimension]);
  }
};

}  // namespace

std::optional<size_t> sample_dimension(const std::vector<int64_t>& a, int64_t samples_a, const std::vector<int64_t>& b,
                                       int64_t samples_b) {
  if (a.size() != b.size()) return std::nullopt;
  for (size_t d = 0; d < a.size(); ++d) {
    if (!is_of_samples(a[d], samples_a, b[d], samples_b)) continue;
    bool others_fit = true;
    for (size_t e = 0; e < a.size(); ++e) others_fit = others_fit && (e == d || a[e] == b[e]);
    if (others_fit) return d;
  }
  return std::nullopt;
}

std::optional<Whole> concatenated(const std::vector<Whole>& parts, size_t dimension) {
  Whole whole{.element = parts.front().element, .shape = parts.front().shape};
  for (const Whole& each : parts) {
    if (each.element != whole.element || each.shape.size() <= dimension) return std::nullopt;
    whole.shape[dimension] = each.shape[dimension];
    if (each.shape != whole.shape) return std::nullopt;
  }
  whole.shape[dimension] = 0;
  size_t outer = 1;
  for (size_t d = 0; d < dimension; ++d) outer *= static_cast<size_t>(whole.shape[d]);
  for (const Whole& each : parts) {
    whole.shape[dimension] += each.shape[dimension];
    whole.samples += each.samples;
  }
  for (size_t i = 0; i < outer; ++i)
    for (const Whole& each : parts) {  // outer is not 0 here
      const size_t size = each.bytes.size() / outer;
      const auto from = each.bytes.begin() + static_cast<std::ptrdiff_t>(i * size);
      whole.bytes.insert(whole.bytes.end(), from, from + static_cast<std::ptrdiff_t>(size));
    }
  return whole;
}

std::vector<Reading> readings_of(const Whole& whole, const PiecePlace& piece, bool other_shards) {
  const Box& box = piece.box;
  const size_t dims = box.shape.size();
  std::vector<Reading> readings;
  if (whole.shape.size() != dims) return readings;
  const bool is_empty = count_of(box.size) == 0;  // its other dimensions may be of any size, and have no indices
  const auto add = [&](std::optional<size_t> of_samples) {
    Reading reading;
    std::optional<size_t> divided;
    for (size_t d = 0; d < dims; ++d) {
      if (d == of_samples) {
        const int64_t rows = box.shape[d] / piece.samples;
        std::vector<int64_t> indices;
        for (const int64_t row : *piece.rows)
          for (int64_t i = 0; i < rows; ++i) indices.push_back(row * rows + i);
        reading.indices.push_back(std::move(indices));
        reading.is_by_sample = true;
      } else if (box.shape[d] == whole.shape[d]) {
        reading.indices.push_back(is_empty ? std::vector<int64_t>() : range(box.offset[d], box.size[d]));
      } else if (!piece.is_placed && !divided && box.shape[d] > 0 && whole.shape[d] % box.shape[d] == 0 &&
                 whole.shape[d] > 0) {
        divided = d;
        reading.indices.emplace_back();
      } else {
        return;
      }
    }
    if (!divided) {
      readings.push_back(std::move(reading));
      return;
    }
    if (is_empty) {
      readings.push_back(std::move(reading));
      return;
    }
    const auto shards = static_cast<int>(whole.shape[*divided] / box.shape[*divided]);
    const auto add_shard = [&](int shard) {
      reading.shard = shard;
      for (const int64_t blocks : {1, 2, 3}) {
        const int64_t size = box.shape[*divided] / blocks;
        if (size * blocks != box.shape[*divided]) continue;
        reading.blocks = blocks;
        std::vector<int64_t>& indices = reading.indices[*divided];
        indices.clear();
        for (int64_t block = 0; block < blocks; ++block) {
          const std::vector<int64_t> of_block = range((block * shards + shard) * size, size);
          indices.insert(indices.end(), of_block.begin(), of_block.end());
        }
        readings.push_back(reading);
      }
    };
    if (!other_shards)
      add_shard(piece.place % shards);
    else
      for (int shard = 0; shard < shards; ++shard)
        if (shard != piece.place % shards) add_shard(shard);
  };
  // A value that the reference has of some micro-batches only has not the rows of all samples.
  const auto is_there = [&](int64_t row) { return row < whole.samples; };
  if (piece.rows && static_cast<int64_t>(piece.rows->size()) == piece.samples &&
      std::ranges::all_of(*piece.rows, is_there))
    for (size_t d = 0; d < dims; ++d)
      if (box.offset[d] == 0 && box.size[d] == box.shape[d] &&
          is_of_samples(whole.shape[d], whole.samples, box.shape[d], piece.samples))
        add(d);
  add(std::nullopt);
  return readings;
}

std::vector<std::byte> elements_of_part(const Whole& whole, const Reading& reading) {
  size_t count = 1;
  for (const auto& indices : reading.indices) count *= indices.size();
  Cut cut{.whole = whole, .reading = reading};
  if (count == 0) return {};
  const size_t dims = whole.shape.size();
  cut.stride.assign(dims, size_of(whole.element));
  for (size_t d = dims; d-- > 1;) cut.stride[d - 1] = cut.stride[d] * static_cast<size_t>(whole.shape[d]);
  cut.run_dimension = dims;
  cut.run_bytes = size_of(whole.element);
  while (cut.run_dimension > 0) {
    const size_t d = cut.run_dimension - 1;
    const auto& indices = reading.indices[d];
    if (!are_consecutive(indices)) break;
    cut.run_dimension = d;
    cut.run_bytes = indices.size() * cut.stride[d];
    if (static_cast<int64_t>(indices.size()) != whole.shape[d]) break;
  }
  cut.bytes.reserve(count * size_of(whole.element));
  cut.from(0, 0);
  return std::move(cut.bytes);
}

Summary sketch_of_part(const Whole& whole, const Reading& reading, const Box& box) {
  if (count_of(box.size) == 0) return {};
  return sketch_of(whole.element, elements_of_part(whole, reading).data(), box);
}

}  // namespace lockstep::inspect::compare
