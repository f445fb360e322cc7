// The fingerprint's loops in plain C++, the exact statistics, and the choice of the instruction set.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "inspectors/fingerprint/loop.h"

namespace lockstep::inspect::kernels {
namespace {

float from_half(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU, fraction = bits & 0x3ffU;
  if (exponent == 0) {  // zero or subnormal: fraction × 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
  // A signalling NaN becomes a quiet one, as with the machine's instruction.
  const uint32_t quiet = exponent == 31 && fraction != 0 ? 0x400000U : 0U;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13) | quiet);
}

struct Portable {
  struct Words {
    uint32_t at[16];
  };
  struct Sums {
    uint64_t at[8];
  };
  struct Floats {
    float at[16];
  };
  struct Doubles {
    double at[8];
  };
  struct DoubleSquares {
    double at[16];
  };

  static void prefetch(const uint8_t*) {}
  static Words load(const uint8_t* data) {
    Words words;
    std::memcpy(words.at, data, sizeof words.at);
    return words;
  }
  static Sums load_sums(const uint64_t* lanes) {
    Sums sums;
    std::memcpy(sums.at, lanes, sizeof sums.at);
    return sums;
  }
  static void store_sums(Sums sums, uint64_t* lanes) { std::memcpy(lanes, sums.at, sizeof sums.at); }
  static Sums add(Sums a, Sums b) {
    for (size_t i = 0; i < 8; ++i) a.at[i] += b.at[i];
    return a;
  }
  static Sums nh(Words words, const uint32_t* key) {
    Sums sums;
    for (size_t i = 0; i < 8; ++i)
      sums.at[i] = uint64_t{words.at[2 * i] + key[2 * i]} * uint64_t{words.at[2 * i + 1] + key[2 * i + 1]};
    return sums;
  }
  static Sums scramble(Sums sums) {
    for (uint64_t& lane : sums.at) lane = (lane ^ (lane >> 47)) * kScramblePrime;
    return sums;
  }

  static Words no_words() { return {}; }
  static Floats add_float_lanes(Floats a, Floats b) {
    for (size_t i = 0; i < 16; ++i) a.at[i] += b.at[i];
    return a;
  }
  static DoubleSquares add_squares(DoubleSquares a, DoubleSquares b) {
    for (size_t i = 0; i < 16; ++i) a.at[i] += b.at[i];
    return a;
  }
  static Floats no_floats() { return {}; }
  static DoubleSquares no_squares() { return {}; }
  static Words magnitude(Words bits) {
    for (uint32_t& word : bits.at) word &= 0x7fffffffU;
    return bits;
  }
  static Words max(Words a, Words b) {
    for (size_t i = 0; i < 16; ++i) a.at[i] = std::max(a.at[i], b.at[i]);
    return a;
  }
  static Floats add_square(Floats sum, Words bits) {
    Floats values;
    std::memcpy(values.at, bits.at, sizeof values.at);
    for (size_t i = 0; i < 16; ++i) sum.at[i] += values.at[i] * values.at[i];
    return sum;
  }
  static bool usual(Words greatest) {
    const uint32_t most = largest_word(greatest);
    return most < kBeyond && (most >= kSmallest || most == 0);
  }
  static uint32_t largest_word(Words words) { return *std::max_element(words.at, words.at + 16); }
  static DoubleSquares add_floats(DoubleSquares sum, Floats squares) {
    for (size_t i = 0; i < 16; ++i) sum.at[i] += static_cast<double>(squares.at[i]);
    return sum;
  }
  static void store_squares(DoubleSquares sum, double* lanes) {
    for (size_t i = 0; i < 16; ++i) lanes[i] += sum.at[i];
  }

  static Doubles no_doubles() { return {}; }
  static Doubles add_doubles(Doubles a, Doubles b) {
    for (size_t i = 0; i < 8; ++i) a.at[i] += b.at[i];
    return a;
  }
  static Doubles add_double_square(Doubles sum, Words bits) {
    Doubles values;
    std::memcpy(values.at, bits.at, sizeof values.at);
    for (size_t i = 0; i < 8; ++i) sum.at[i] += values.at[i] * values.at[i];
    return sum;
  }
  static Doubles max_magnitude(Doubles greatest, Words bits) {
    for (size_t i = 0; i < 8; ++i) {
      uint64_t word;
      std::memcpy(&word, bits.at + 2 * i, sizeof word);
      word &= 0x7fffffffffffffffULL;
      if (word > std::bit_cast<uint64_t>(greatest.at[i])) greatest.at[i] = std::bit_cast<double>(word);
    }
    return greatest;
  }
  static bool all_finite(Doubles greatest) {
    return std::all_of(greatest.at, greatest.at + 8, [](double value) { return std::isfinite(value); });
  }
  static Doubles greater(Doubles a, Doubles b) {
    for (size_t i = 0; i < 8; ++i) a.at[i] = std::max(a.at[i], b.at[i]);
    return a;
  }
  static double largest_double(Doubles values) { return *std::max_element(values.at, values.at + 8); }
  static void store_doubles(Doubles values, double* lanes) {
    for (size_t i = 0; i < 8; ++i) lanes[i] += values.at[i];
  }

  static void store(Words words, void* to) { std::memcpy(to, words.at, sizeof words.at); }
  /// Applies `change` to each element of two blocks.
  template <typename Element, typename Change>
  static Words each(Words a, const Words& b, Change change) {
    Element left[kBlockBytes / sizeof(Element)], right[kBlockBytes / sizeof(Element)];
    std::memcpy(left, a.at, sizeof left);
    std::memcpy(right, b.at, sizeof right);
    for (size_t i = 0; i < kBlockBytes / sizeof(Element); ++i)
      left[i] = static_cast<Element>(change(left[i], right[i]));
    std::memcpy(a.at, left, sizeof left);
    return a;
  }
  template <typename Element>
  static Words magnitudes(Words words) {
    return each<Element>(words, words, [](Element value, Element) { return value < 0 ? 0U - value : value; });
  }
  template <typename Element>
  static Words small_magnitudes(Words words) {
    return magnitudes<Element>(words);
  }
  static Words max_bytes(Words a, Words b) {
    return each<uint8_t>(a, b, [](uint8_t x, uint8_t y) { return std::max(x, y); });
  }
  static Words max_halves(Words a, Words b) {
    return each<uint16_t>(a, b, [](uint16_t x, uint16_t y) { return std::max(x, y); });
  }
  static Words add_words(Words a, Words b) {
    return each<uint32_t>(a, b, [](uint32_t x, uint32_t y) { return x + y; });
  }
  static Words signed_half_squares(Words words) {
    for (uint32_t& word : words.at) {
      const auto low = static_cast<int16_t>(word), high = static_cast<int16_t>(word >> 16);
      word = static_cast<uint32_t>(low * low) + static_cast<uint32_t>(high * high);
    }
    return words;
  }
  static Words byte_squares(Words words) {
    for (uint32_t& word : words.at) {
      const uint32_t a = word & 0xffU, b = (word >> 8) & 0xffU, c = (word >> 16) & 0xffU, d = word >> 24;
      word = a * a + b * b + c * c + d * d;
    }
    return words;
  }
  static Words lower_halves(Words words) {
    for (uint32_t& word : words.at) word &= 0xffffU;
    return words;
  }
  static Words upper_halves(Words words) {
    for (uint32_t& word : words.at) word >>= 16;
    return words;
  }
  static Words square_words(Words words) {
    for (uint32_t& word : words.at) word *= word;
    return words;
  }
  static Sums add_words_to_sums(Sums sums, Words words) {
    for (size_t i = 0; i < 8; ++i) sums.at[i] += uint64_t{words.at[2 * i]} + words.at[2 * i + 1];
    return sums;
  }

  template <typename Element>
  static Words word_magnitudes(Words words) {
    return magnitudes<Element>(words);
  }
  template <typename Element>
  static DoubleSquares add_word_squares(DoubleSquares sum, Words words) {
    for (size_t i = 0; i < 16; ++i) {
      const auto value = static_cast<double>(static_cast<Element>(words.at[i]));
      sum.at[i] += value * value;
    }
    return sum;
  }
  template <typename Element>
  static Doubles to_doubles(Words words) {
    Element elements[8];
    std::memcpy(elements, words.at, sizeof elements);
    Doubles values;
    for (size_t i = 0; i < 8; ++i) values.at[i] = static_cast<double>(elements[i]);
    return values;
  }
  static Doubles square_doubles(Doubles values) {
    for (double& value : values.at) value *= value;
    return values;
  }
  static Doubles double_magnitudes(Doubles values) {
    for (double& value : values.at) value = std::abs(value);
    return values;
  }

  static Words low_halves(Words words) {
    for (uint32_t& word : words.at) word <<= 16;
    return words;
  }
  static Words high_halves(Words words) {
    for (uint32_t& word : words.at) word &= 0xffff0000U;
    return words;
  }
  template <int half>
  static Words widened(Words words) {
    uint16_t halves[32];
    std::memcpy(halves, words.at, sizeof halves);
    for (size_t i = 0; i < 16; ++i) words.at[i] = std::bit_cast<uint32_t>(from_half(halves[16 * half + i]));
    return words;
  }
};

constexpr Table kPortable = table<Portable>("portable");

template <typename Element, typename ToDouble>
void careful(const uint8_t* stripe, Chunk& chunk, ToDouble to_double) {
  double squares[kSquareLanes] = {};
  for (size_t i = 0; i < kStripeBytes / sizeof(Element); ++i) {
    Element element;
    std::memcpy(&element, stripe + i * sizeof element, sizeof element);
    const double value = to_double(element);
    if (std::isfinite(value)) {
      squares[i % kSquareLanes] += value * value;
      chunk.abs_max = std::max(chunk.abs_max, std::abs(value));
    } else if (std::isnan(value)) {
      ++chunk.nan_count;
    } else {
      ++chunk.inf_count;
    }
  }
  for (size_t lane = 0; lane < kSquareLanes; ++lane) chunk.squares[lane] += squares[lane];
}

}  // namespace

constinit const Keys kKeys = make_keys();

void careful_float32(const uint8_t* stripe, Chunk& chunk) {
  careful<float>(stripe, chunk, [](float value) { return static_cast<double>(value); });
}
void careful_float64(const uint8_t* stripe, Chunk& chunk) {
  careful<double>(stripe, chunk, [](double value) { return value; });
}
void careful_bfloat16(const uint8_t* stripe, Chunk& chunk) {
  careful<uint16_t>(stripe, chunk,
                    [](uint16_t bits) { return static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16)); });
}
void careful_float16(const uint8_t* stripe, Chunk& chunk) {
  careful<uint16_t>(stripe, chunk, [](uint16_t bits) { return static_cast<double>(from_half(bits)); });
}

const Table& portable() { return kPortable; }

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"); }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

const Table& best() {
  static const Table& chosen = []() -> const Table& {
    const char* asked = std::getenv("LOCKSTEP_SIMD");
    const std::string_view name = asked ? asked : "";
    if (name == "portable") return portable();
    if (has_avx512() && name != "avx2") return avx512();
    return has_avx2() ? avx2() : portable();
  }();
  return chosen;
}

}  // namespace lockstep::inspect::kernels
