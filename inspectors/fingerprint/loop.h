// Loops over stripes, compiled once for every instruction set. `Isa` has the operations on 64 bytes. Everything is in
// an unnamed namespace, so that the linker does not merge the copies of different instruction sets.
#pragma once
#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "inspectors/fingerprint/kernels.h"

namespace lockstep::inspect::kernels {
namespace {

inline constexpr uint64_t kNoSums[kHashLanes] = {};

template <typename Isa>
struct Hasher {
  typename Isa::Sums first, second;

  void add(typename Isa::Words words, const uint32_t* key) {
    first = Isa::add(first, Isa::nh(words, key));
    second = Isa::add(second, Isa::nh(words, key + kToeplitzShift));
  }
  void end_stripe() {
    first = Isa::scramble(first);
    second = Isa::scramble(second);
  }
};

/// Takes no statistics.
template <typename Isa>
struct NoStatistics {
  void add(typename Isa::Words) {}
  void end_stripe(const uint8_t*, Chunk&) {}
  void begin_stripe() {}
};

/// Takes elements that are float32 once `Values` has widened the words: one or two vectors of 16, which are added to
/// one sum or to one each (a thread of a GPU reads 16 of a block's 64 bytes, and has to have all that goes into a sum).
template <typename Isa, typename Values, void (*careful)(const uint8_t*, Chunk&)>
struct FloatStatistics {
  typename Isa::Floats squares[Values::kSums];
  typename Isa::Words greatest;
  typename Isa::DoubleSquares sum = Isa::no_squares();

  void begin_stripe() {
    for (auto& each : squares) each = Isa::no_floats();
    greatest = Isa::no_words();
  }
  void add(typename Isa::Words words) {
    Values::each(words, [this](size_t which, typename Isa::Words bits) {
      squares[which] = Isa::add_square(squares[which], bits);
      greatest = Isa::max(greatest, Isa::magnitude(bits));
    });
  }
  void end_stripe(const uint8_t* stripe, Chunk& chunk) {
    if (Isa::usual(greatest)) [[likely]] {
      if constexpr (Values::kSums == 2) squares[0] = Isa::add_float_lanes(squares[0], squares[1]);
      sum = Isa::add_floats(sum, squares[0]);
      largest = Isa::max(largest, greatest);
    } else {
      careful(stripe, chunk);
    }
  }
  void finish(Chunk& chunk) const {
    Isa::store_squares(sum, chunk.squares);
    const double value = static_cast<double>(std::bit_cast<float>(Isa::largest_word(largest)));
    if (value > chunk.abs_max) chunk.abs_max = value;
  }
  typename Isa::Words largest = Isa::no_words();
};

template <typename Isa>
struct DoubleStatistics {
  typename Isa::Doubles squares, greatest;
  typename Isa::Doubles sum = Isa::no_doubles(), largest = Isa::no_doubles();

  void begin_stripe() { squares = greatest = Isa::no_doubles(); }
  void add(typename Isa::Words words) {
    squares = Isa::add_double_square(squares, words);
    greatest = Isa::max_magnitude(greatest, words);
  }
  void end_stripe(const uint8_t* stripe, Chunk& chunk) {
    if (Isa::all_finite(greatest)) [[likely]] {
      sum = Isa::add_doubles(sum, squares);
      largest = Isa::greater(largest, greatest);
    } else {
      careful_float64(stripe, chunk);
    }
  }
  void finish(Chunk& chunk) const {
    Isa::store_doubles(sum, chunk.squares);
    const double value = Isa::largest_double(largest);
    if (value > chunk.abs_max) chunk.abs_max = value;
  }
};

/// Returns the largest `Element` in some words; none is negative.
template <typename Isa, typename Element>
double largest_element(typename Isa::Words words) {
  Element elements[kBlockBytes / sizeof(Element)];
  Isa::store(words, elements);
  return static_cast<double>(*std::max_element(std::begin(elements), std::end(elements)));
}

/// Adds squares of 8 and 16 bits as integers.
template <typename Isa, typename Element>
struct SmallIntegerStatistics {
  using Magnitude = std::make_unsigned_t<Element>;
  typename Isa::Words largest = Isa::no_words();
  typename Isa::Sums sum = Isa::load_sums(kNoSums);
  typename Isa::Words squares;  // 32 bits each

  void begin_stripe() { squares = Isa::no_words(); }
  void add(typename Isa::Words words) {
    if constexpr (sizeof(Element) == 1) {
      const auto magnitudes = Isa::template small_magnitudes<Element>(words);
      largest = Isa::max_bytes(largest, magnitudes);
      squares = Isa::add_words(squares, Isa::byte_squares(magnitudes));  // a stripe's: less than 2^22
    } else {
      largest = Isa::max_halves(largest, Isa::template small_magnitudes<Element>(words));
      if constexpr (std::is_signed_v<Element>) {
        sum = Isa::add_words_to_sums(sum, Isa::signed_half_squares(words));
      } else {
        sum = Isa::add_words_to_sums(sum, Isa::square_words(Isa::lower_halves(words)));
        sum = Isa::add_words_to_sums(sum, Isa::square_words(Isa::upper_halves(words)));
      }
    }
  }
  void end_stripe(const uint8_t*, Chunk&) {
    if constexpr (sizeof(Element) == 1) sum = Isa::add_words_to_sums(sum, squares);
  }
  void finish(Chunk& chunk) const {
    uint64_t lanes[kHashLanes];
    Isa::store_sums(sum, lanes);
    for (size_t lane = 0; lane < kHashLanes; ++lane) chunk.squares[lane] += static_cast<double>(lanes[lane]);
    chunk.abs_max = std::max(chunk.abs_max, largest_element<Isa, Magnitude>(largest));
  }
};

/// Takes 32 bits: every value is a double.
template <typename Isa, typename Element>
struct WordStatistics {
  typename Isa::Words largest = Isa::no_words();
  typename Isa::DoubleSquares sum = Isa::no_squares(), squares;

  void begin_stripe() { squares = Isa::no_squares(); }
  void add(typename Isa::Words words) {
    largest = Isa::max(largest, Isa::template word_magnitudes<Element>(words));
    squares = Isa::template add_word_squares<Element>(squares, words);
  }
  void end_stripe(const uint8_t*, Chunk&) { sum = Isa::add_squares(sum, squares); }
  void finish(Chunk& chunk) const {
    Isa::store_squares(sum, chunk.squares);
    chunk.abs_max = std::max(chunk.abs_max, largest_element<Isa, uint32_t>(largest));
  }
};

/// Takes 64 bits, rounded to the nearest double.
template <typename Isa, typename Element>
struct LongStatistics {
  typename Isa::Doubles sum = Isa::no_doubles(), largest = Isa::no_doubles(), squares;

  void begin_stripe() { squares = Isa::no_doubles(); }
  void add(typename Isa::Words words) {
    const typename Isa::Doubles values = Isa::template to_doubles<Element>(words);
    squares = Isa::add_doubles(squares, Isa::square_doubles(values));
    largest = Isa::greater(largest, Isa::double_magnitudes(values));
  }
  void end_stripe(const uint8_t*, Chunk&) { sum = Isa::add_doubles(sum, squares); }
  void finish(Chunk& chunk) const {
    Isa::store_doubles(sum, chunk.squares);
    chunk.abs_max = std::max(chunk.abs_max, Isa::largest_double(largest));
  }
};

template <typename Isa>
struct Float32Values {
  static constexpr size_t kSums = 1;
  template <typename Each>
  static void each(typename Isa::Words words, Each take) {
    take(0, words);
  }
};
template <typename Isa>
struct Bfloat16Values {
  static constexpr size_t kSums = 1;
  template <typename Each>
  static void each(typename Isa::Words words, Each take) {
    take(0, Isa::low_halves(words));
    take(0, Isa::high_halves(words));
  }
};
template <typename Isa>
struct Float16Values {
  static constexpr size_t kSums = 2;
  template <typename Each>
  static void each(typename Isa::Words words, Each take) {
    take(0, Isa::template widened<0>(words));
    take(1, Isa::template widened<1>(words));
  }
};

/// What is known of a chunk while its stripes are read.
template <typename Isa, typename Statistics>
struct Pass {
  Hasher<Isa> hasher;
  Statistics statistics;

  void add(const uint8_t* stripe, Chunk& chunk) {
    statistics.begin_stripe();
    for (size_t offset = 0; offset < kStripeBytes; offset += kBlockBytes) {
      Isa::prefetch(stripe + offset);
      const auto words = Isa::load(stripe + offset);
      hasher.add(words, kKeys.words + offset / 4);
      statistics.add(words);
    }
    hasher.end_stripe();
    statistics.end_stripe(stripe, chunk);
  }
  void finish(Chunk& chunk) const {
    Isa::store_sums(hasher.first, chunk.hash[0]);
    Isa::store_sums(hasher.second, chunk.hash[1]);
    if constexpr (requires { statistics.finish(chunk); }) statistics.finish(chunk);
  }
};

template <typename Isa, typename Statistics>
void run(const uint8_t* data, size_t stripes, Chunk* chunks, size_t count) {
  Pass<Isa, Statistics> passes[kSideBySide];
  for (size_t c = 0; c < count; ++c)
    passes[c].hasher = {Isa::load_sums(chunks[c].hash[0]), Isa::load_sums(chunks[c].hash[1])};
  const size_t turn = count == 1 ? stripes : 1;
  for (size_t s = 0; s < stripes; s += turn) {
    for (size_t c = 0; c < count; ++c) {
      Pass<Isa, Statistics> pass = passes[c];  // in registers
      const uint8_t* stripe = data + c * kChunkBytes + s * kStripeBytes;
      for (size_t i = 0; i < turn; ++i, stripe += kStripeBytes) pass.add(stripe, chunks[c]);
      passes[c] = pass;
    }
  }
  for (size_t c = 0; c < count; ++c) passes[c].finish(chunks[c]);
}

template <typename Isa>
constexpr Table table(const char* name) {
  return {.name = name,
          .bytes = run<Isa, NoStatistics<Isa>>,
          .float32 = run<Isa, FloatStatistics<Isa, Float32Values<Isa>, careful_float32>>,
          .float64 = run<Isa, DoubleStatistics<Isa>>,
          .bfloat16 = run<Isa, FloatStatistics<Isa, Bfloat16Values<Isa>, careful_bfloat16>>,
          .float16 = run<Isa, FloatStatistics<Isa, Float16Values<Isa>, careful_float16>>,
          .uint8 = run<Isa, SmallIntegerStatistics<Isa, uint8_t>>,
          .int8 = run<Isa, SmallIntegerStatistics<Isa, int8_t>>,
          .uint16 = run<Isa, SmallIntegerStatistics<Isa, uint16_t>>,
          .int16 = run<Isa, SmallIntegerStatistics<Isa, int16_t>>,
          .uint32 = run<Isa, WordStatistics<Isa, uint32_t>>,
          .int32 = run<Isa, WordStatistics<Isa, int32_t>>,
          .uint64 = run<Isa, LongStatistics<Isa, uint64_t>>,
          .int64 = run<Isa, LongStatistics<Isa, int64_t>>};
}

}  // namespace
}  // namespace lockstep::inspect::kernels
