// The fingerprint's loops for AVX2 with F16C; called only where the machine has both (its options:
// inspectors/CMakeLists.txt).
#include <immintrin.h>

#include <algorithm>

#include "inspectors/fingerprint/loop.h"

namespace lockstep::inspect::kernels {
namespace {

struct Avx2 {
  struct Words {
    __m256i low, high;
  };
  using Sums = Words;
  struct Floats {
    __m256 low, high;
  };
  struct Doubles {
    __m256d low, high;
  };
  struct DoubleSquares {
    Doubles low, high;
  };

  static __m256i loaded(const void* data) { return _mm256_loadu_si256(static_cast<const __m256i*>(data)); }
  static void prefetch(const uint8_t* data) { _mm_prefetch(reinterpret_cast<const char*>(data + 1024), _MM_HINT_T0); }
  static Words load(const uint8_t* data) { return {loaded(data), loaded(data + 32)}; }
  static Sums load_sums(const uint64_t* lanes) { return {loaded(lanes), loaded(lanes + 4)}; }
  static void store_sums(Sums sums, uint64_t* lanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sums.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes + 4), sums.high);
  }
  static Sums add(Sums a, Sums b) { return {_mm256_add_epi64(a.low, b.low), _mm256_add_epi64(a.high, b.high)}; }
  static __m256i products(__m256i words, const uint32_t* key) {
    const __m256i keyed = _mm256_add_epi32(words, loaded(key));
    return _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
  }
  static Sums nh(Words words, const uint32_t* key) { return {products(words.low, key), products(words.high, key + 8)}; }
  static __m256i scrambled(__m256i sums) {
    const __m256i prime = _mm256_set1_epi32(static_cast<int>(kScramblePrime));
    const __m256i value = _mm256_xor_si256(sums, _mm256_srli_epi64(sums, 47));
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(value, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(value, prime), _mm256_slli_epi64(high, 32));
  }
  static Sums scramble(Sums sums) { return {scrambled(sums.low), scrambled(sums.high)}; }

  static Words no_words() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Floats no_floats() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static DoubleSquares no_squares() { return {no_doubles(), no_doubles()}; }
  static Words magnitude(Words bits) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    return {_mm256_and_si256(bits.low, mask), _mm256_and_si256(bits.high, mask)};
  }
  static Words max(Words a, Words b) { return {_mm256_max_epu32(a.low, b.low), _mm256_max_epu32(a.high, b.high)}; }
  static __m256 with_square(__m256 sum, __m256i bits) {
    const __m256 value = _mm256_castsi256_ps(bits);
    return _mm256_add_ps(sum, _mm256_mul_ps(value, value));
  }
  static Floats add_square(Floats sum, Words bits) {
    return {with_square(sum.low, bits.low), with_square(sum.high, bits.high)};
  }
  static bool usual(Words greatest) {
    // The sign bits are cleared, so the signed comparison is right.
    const __m256i most = _mm256_max_epi32(greatest.low, greatest.high);
    const __m256i beyond = _mm256_cmpgt_epi32(most, _mm256_set1_epi32(static_cast<int>(kBeyond) - 1));
    const __m256i enough = _mm256_cmpgt_epi32(most, _mm256_set1_epi32(static_cast<int>(kSmallest) - 1));
    return _mm256_testz_si256(beyond, beyond) &&
           (!_mm256_testz_si256(enough, enough) || _mm256_testz_si256(most, most));
  }
  static uint32_t largest_word(Words words) {
    alignas(32) uint32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_max_epu32(words.low, words.high));
    return *std::max_element(lanes, lanes + 8);
  }
  static Doubles widened_floats(__m256 values) {
    return {_mm256_cvtps_pd(_mm256_castps256_ps128(values)), _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1))};
  }
  static Floats add_float_lanes(Floats a, Floats b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static DoubleSquares add_squares(DoubleSquares a, DoubleSquares b) {
    return {add_doubles(a.low, b.low), add_doubles(a.high, b.high)};
  }
  static DoubleSquares add_floats(DoubleSquares sum, Floats squares) {
    return {add_doubles(sum.low, widened_floats(squares.low)), add_doubles(sum.high, widened_floats(squares.high))};
  }
  static void store_squares(DoubleSquares sum, double* lanes) {
    store_doubles(sum.low, lanes);
    store_doubles(sum.high, lanes + 8);
  }

  static Doubles no_doubles() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
  static Doubles add_doubles(Doubles a, Doubles b) {
    return {_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)};
  }
  static __m256d with_double_square(__m256d sum, __m256i bits) {
    const __m256d value = _mm256_castsi256_pd(bits);
    return _mm256_add_pd(sum, _mm256_mul_pd(value, value));
  }
  static Doubles add_double_square(Doubles sum, Words bits) {
    return {with_double_square(sum.low, bits.low), with_double_square(sum.high, bits.high)};
  }
  /// Compares as bits, where NaN and Inf are the greatest of all; without sign bits the signed comparison is right.
  static __m256d greater_bits(__m256d greatest, __m256i bits) {
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi64x(0x7fffffffffffffffLL));
    const __m256i more = _mm256_cmpgt_epi64(magnitude, _mm256_castpd_si256(greatest));
    return _mm256_blendv_pd(greatest, _mm256_castsi256_pd(magnitude), _mm256_castsi256_pd(more));
  }
  static Doubles max_magnitude(Doubles greatest, Words bits) {
    return {greater_bits(greatest.low, bits.low), greater_bits(greatest.high, bits.high)};
  }
  static bool all_finite(Doubles greatest) {
    const __m256i limit = _mm256_set1_epi64x(0x7fefffffffffffffLL);
    const __m256i beyond = _mm256_or_si256(_mm256_cmpgt_epi64(_mm256_castpd_si256(greatest.low), limit),
                                           _mm256_cmpgt_epi64(_mm256_castpd_si256(greatest.high), limit));
    return _mm256_testz_si256(beyond, beyond);
  }
  static Doubles greater(Doubles a, Doubles b) { return {_mm256_max_pd(a.low, b.low), _mm256_max_pd(a.high, b.high)}; }
  static double largest_double(Doubles values) {
    double lanes[4];
    _mm256_storeu_pd(lanes, _mm256_max_pd(values.low, values.high));
    return *std::max_element(lanes, lanes + 4);
  }
  static void store_doubles(Doubles values, double* lanes) {
    _mm256_storeu_pd(lanes, _mm256_add_pd(_mm256_loadu_pd(lanes), values.low));
    _mm256_storeu_pd(lanes + 4, _mm256_add_pd(_mm256_loadu_pd(lanes + 4), values.high));
  }

  static void store(Words words, void* to) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), words.low);
    _mm256_storeu_si256(static_cast<__m256i*>(to) + 1, words.high);
  }
  template <typename Element>
  static Words small_magnitudes(Words words) {
    if constexpr (std::is_unsigned_v<Element>)
      return words;
    else if constexpr (sizeof(Element) == 1)
      return {_mm256_abs_epi8(words.low), _mm256_abs_epi8(words.high)};
    else
      return {_mm256_abs_epi16(words.low), _mm256_abs_epi16(words.high)};
  }
  static Words max_bytes(Words a, Words b) { return {_mm256_max_epu8(a.low, b.low), _mm256_max_epu8(a.high, b.high)}; }
  static Words max_halves(Words a, Words b) {
    return {_mm256_max_epu16(a.low, b.low), _mm256_max_epu16(a.high, b.high)};
  }
  static Words add_words(Words a, Words b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
  }
  static Words signed_half_squares(Words words) {
    return {_mm256_madd_epi16(words.low, words.low), _mm256_madd_epi16(words.high, words.high)};
  }
  static __m256i sums_of_byte_squares(__m256i words) {
    const __m256i even = _mm256_and_si256(words, _mm256_set1_epi16(0xff)), odd = _mm256_srli_epi16(words, 8);
    return _mm256_add_epi32(_mm256_madd_epi16(even, even), _mm256_madd_epi16(odd, odd));
  }
  static Words byte_squares(Words words) { return {sums_of_byte_squares(words.low), sums_of_byte_squares(words.high)}; }
  static Words lower_halves(Words words) {
    const __m256i mask = _mm256_set1_epi32(0xffff);
    return {_mm256_and_si256(words.low, mask), _mm256_and_si256(words.high, mask)};
  }
  static Words upper_halves(Words words) {
    return {_mm256_srli_epi32(words.low, 16), _mm256_srli_epi32(words.high, 16)};
  }
  static Words square_words(Words words) {
    return {_mm256_mullo_epi32(words.low, words.low), _mm256_mullo_epi32(words.high, words.high)};
  }
  static __m256i with_words(__m256i sums, __m256i words) {
    const __m256i lower = _mm256_and_si256(words, _mm256_set1_epi64x(0xffffffffLL));
    return _mm256_add_epi64(sums, _mm256_add_epi64(lower, _mm256_srli_epi64(words, 32)));
  }
  static Sums add_words_to_sums(Sums sums, Words words) {
    return {with_words(sums.low, words.low), with_words(sums.high, words.high)};
  }

  template <typename Element>
  static Words word_magnitudes(Words words) {
    if constexpr (std::is_unsigned_v<Element>)
      return words;
    else
      return {_mm256_abs_epi32(words.low), _mm256_abs_epi32(words.high)};
  }
  template <typename Element>
  static Doubles widened_words(__m256i words) {
    const __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
    if constexpr (std::is_signed_v<Element>) {
      return {_mm256_cvtepi32_pd(low), _mm256_cvtepi32_pd(high)};
    } else {
      // It is 2^52 + word, as bits, less 2^52.
      const __m256d two52 = _mm256_set1_pd(0x1p52);
      const auto widened = [&](__m128i half) {
        const __m256i bits = _mm256_or_si256(_mm256_cvtepu32_epi64(half), _mm256_castpd_si256(two52));
        return _mm256_sub_pd(_mm256_castsi256_pd(bits), two52);
      };
      return {widened(low), widened(high)};
    }
  }
  template <typename Element>
  static DoubleSquares add_word_squares(DoubleSquares sum, Words words) {
    return {add_doubles(sum.low, square_doubles(widened_words<Element>(words.low))),
            add_doubles(sum.high, square_doubles(widened_words<Element>(words.high)))};
  }
  /// Takes the upper half as 2^84 + upper × 2^32 and the lower as 2^52 + lower, both exact; their sum less the two
  /// powers is rounded once. A signed upper half is taken with 2^31 more.
  template <typename Element>
  static __m256d to_double(__m256i words) {
    constexpr double upper_offset = std::is_signed_v<Element> ? 0x1p84 + 0x1p63 : 0x1p84;
    const __m256i lower = _mm256_blend_epi32(_mm256_castpd_si256(_mm256_set1_pd(0x1p52)), words, 0x55);
    const __m256i upper =
        _mm256_xor_si256(_mm256_srli_epi64(words, 32), _mm256_castpd_si256(_mm256_set1_pd(upper_offset)));
    const __m256d rest = _mm256_sub_pd(_mm256_castsi256_pd(upper), _mm256_set1_pd(upper_offset + 0x1p52));
    return _mm256_add_pd(rest, _mm256_castsi256_pd(lower));
  }
  template <typename Element>
  static Doubles to_doubles(Words words) {
    return {to_double<Element>(words.low), to_double<Element>(words.high)};
  }
  static Doubles square_doubles(Doubles values) {
    return {_mm256_mul_pd(values.low, values.low), _mm256_mul_pd(values.high, values.high)};
  }
  static Doubles double_magnitudes(Doubles values) {
    const __m256d sign = _mm256_set1_pd(-0.0);
    return {_mm256_andnot_pd(sign, values.low), _mm256_andnot_pd(sign, values.high)};
  }

  static Words low_halves(Words words) { return {_mm256_slli_epi32(words.low, 16), _mm256_slli_epi32(words.high, 16)}; }
  static Words high_halves(Words words) {
    const __m256i mask = _mm256_set1_epi32(-65536);
    return {_mm256_and_si256(words.low, mask), _mm256_and_si256(words.high, mask)};
  }
  template <int half>
  static Words widened(Words words) {
    const __m256i halves = half == 0 ? words.low : words.high;
    return {_mm256_castps_si256(_mm256_cvtph_ps(_mm256_castsi256_si128(halves))),
            _mm256_castps_si256(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)))};
  }
};

constexpr Table kAvx2 = table<Avx2>("avx2");

}  // namespace

const Table& avx2() { return kAvx2; }

}  // namespace lockstep::inspect::kernels
