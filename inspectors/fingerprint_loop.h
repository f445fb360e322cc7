// The loop over stripes, once for every instruction set. `Isa` has the operations on 64 bytes; a source includes this
// within its own anonymous namespace's reach, so that no linker takes one instruction set's copy for another's.
#pragma once
#include <bit>
#include <cstring>

#include "inspectors/fingerprint_kernels.h"

namespace lockstep::inspect::kernels {
namespace {

// Squares of float32 are added in float32 within a stripe where they neither overflow nor vanish: largest magnitude
// from 2^-50 to 2^60, compared as bits. Others go the careful way.
inline constexpr uint32_t kSmallest = (127U - 50U) << 23;
inline constexpr uint32_t kBeyond = (127U + 60U) << 23;

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

/// No statistics.
template <typename Isa>
struct NoStatistics {
  void add(typename Isa::Words) {}
  void end_stripe(const uint8_t*, Chunk&) {}
  void begin_stripe() {}
};

/// Elements that are float32 once `Values` has widened the words: one or two vectors of 16.
template <typename Isa, typename Values, void (*careful)(const uint8_t*, Chunk&)>
struct FloatStatistics {
  typename Isa::Floats squares;
  typename Isa::Words greatest;
  typename Isa::DoubleSquares sum = Isa::no_squares();

  void begin_stripe() {
    squares = Isa::no_floats();
    greatest = Isa::no_words();
  }
  void add(typename Isa::Words words) {
    Values::each(words, [this](typename Isa::Words bits) {
      squares = Isa::add_square(squares, bits);
      greatest = Isa::max(greatest, Isa::magnitude(bits));
    });
  }
  void end_stripe(const uint8_t* stripe, Chunk& chunk) {
    if (Isa::usual(greatest)) [[likely]] {
      sum = Isa::add_floats(sum, squares);
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

template <typename Isa>
struct Float32Values {
  template <typename Each>
  static void each(typename Isa::Words words, Each take) {
    take(words);
  }
};
template <typename Isa>
struct Bfloat16Values {
  template <typename Each>
  static void each(typename Isa::Words words, Each take) {
    take(Isa::low_halves(words));
    take(Isa::high_halves(words));
  }
};
template <typename Isa>
struct Float16Values {
  template <typename Each>
  static void each(typename Isa::Words words, Each take) {
    take(Isa::template widened<0>(words));
    take(Isa::template widened<1>(words));
  }
};

template <typename Isa, typename Statistics>
void run(const uint8_t* data, size_t stripes, Chunk& chunk) {
  Hasher<Isa> hasher{Isa::load_sums(chunk.hash[0]), Isa::load_sums(chunk.hash[1])};
  Statistics statistics;
  for (size_t s = 0; s < stripes; ++s, data += kStripeBytes) {
    statistics.begin_stripe();
    for (size_t offset = 0; offset < kStripeBytes; offset += kBlockBytes) {
      Isa::prefetch(data + offset);
      const auto words = Isa::load(data + offset);
      hasher.add(words, kKeys.data() + offset / 4);
      statistics.add(words);
    }
    hasher.end_stripe();
    statistics.end_stripe(data, chunk);
  }
  Isa::store_sums(hasher.first, chunk.hash[0]);
  Isa::store_sums(hasher.second, chunk.hash[1]);
  if constexpr (requires { statistics.finish(chunk); }) statistics.finish(chunk);
}

template <typename Isa>
constexpr Table table(const char* name) {
  return {.name = name,
          .bytes = run<Isa, NoStatistics<Isa>>,
          .float32 = run<Isa, FloatStatistics<Isa, Float32Values<Isa>, careful_float32>>,
          .float64 = run<Isa, DoubleStatistics<Isa>>,
          .bfloat16 = run<Isa, FloatStatistics<Isa, Bfloat16Values<Isa>, careful_bfloat16>>,
          .float16 = run<Isa, FloatStatistics<Isa, Float16Values<Isa>, careful_float16>>};
}

}  // namespace
}  // namespace lockstep::inspect::kernels
