// The fingerprint's loops for AVX-512; called only where the machine has it (its options: inspectors/CMakeLists.txt).
#include <immintrin.h>

#include "inspectors/fingerprint/loop.h"

namespace lockstep::inspect::kernels {
namespace {

struct Avx512 {
  using Words = __m512i;
  using Sums = __m512i;
  using Floats = __m512;
  using Doubles = __m512d;
  struct DoubleSquares {
    __m512d low, high;
  };

  static void prefetch(const uint8_t* data) { _mm_prefetch(reinterpret_cast<const char*>(data + 1024), _MM_HINT_T0); }
  static Words load(const uint8_t* data) { return _mm512_loadu_si512(data); }
  static Sums load_sums(const uint64_t* lanes) { return _mm512_loadu_si512(lanes); }
  static void store_sums(Sums sums, uint64_t* lanes) { _mm512_storeu_si512(lanes, sums); }
  static Sums add(Sums a, Sums b) { return _mm512_add_epi64(a, b); }
  static Sums nh(Words words, const uint32_t* key) {
    const __m512i keyed = _mm512_add_epi32(words, _mm512_loadu_si512(key));
    return _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32));
  }
  static Sums scramble(Sums sums) {
    const __m512i prime = _mm512_set1_epi32(static_cast<int>(kScramblePrime));
    const __m512i value = _mm512_xor_si512(sums, _mm512_srli_epi64(sums, 47));
    const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(value, 32), prime);
    return _mm512_add_epi64(_mm512_mul_epu32(value, prime), _mm512_slli_epi64(high, 32));
  }

  static Words no_words() { return _mm512_setzero_si512(); }
  static Floats no_floats() { return _mm512_setzero_ps(); }
  static DoubleSquares no_squares() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
  static Words magnitude(Words bits) { return _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)); }
  static Words max(Words a, Words b) { return _mm512_max_epu32(a, b); }
  static Floats add_square(Floats sum, Words bits) {
    const __m512 value = _mm512_castsi512_ps(bits);
    return _mm512_add_ps(sum, _mm512_mul_ps(value, value));
  }
  static bool usual(Words greatest) {
    const __mmask16 high = _mm512_cmpge_epu32_mask(greatest, _mm512_set1_epi32(static_cast<int>(kBeyond)));
    const __mmask16 enough = _mm512_cmpge_epu32_mask(greatest, _mm512_set1_epi32(static_cast<int>(kSmallest)));
    return high == 0 && (enough != 0 || _mm512_test_epi32_mask(greatest, greatest) == 0);
  }
  static uint32_t largest_word(Words words) { return _mm512_reduce_max_epu32(words); }
  static Floats add_float_lanes(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static DoubleSquares add_squares(DoubleSquares a, DoubleSquares b) {
    return {_mm512_add_pd(a.low, b.low), _mm512_add_pd(a.high, b.high)};
  }
  static DoubleSquares add_floats(DoubleSquares sum, Floats squares) {
    return {_mm512_add_pd(sum.low, _mm512_cvtps_pd(_mm512_castps512_ps256(squares))),
            _mm512_add_pd(sum.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(squares, 1)))};
  }
  static void store_squares(DoubleSquares sum, double* lanes) {
    store_doubles(sum.low, lanes);
    store_doubles(sum.high, lanes + 8);
  }

  static Doubles no_doubles() { return _mm512_setzero_pd(); }
  static Doubles add_doubles(Doubles a, Doubles b) { return _mm512_add_pd(a, b); }
  static Doubles add_double_square(Doubles sum, Words bits) {
    const __m512d value = _mm512_castsi512_pd(bits);
    return _mm512_add_pd(sum, _mm512_mul_pd(value, value));
  }
  /// Compares as bits, where NaN and Inf are the greatest of all.
  static Doubles max_magnitude(Doubles greatest, Words bits) {
    const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi64(0x7fffffffffffffffLL));
    return _mm512_castsi512_pd(_mm512_max_epu64(_mm512_castpd_si512(greatest), magnitude));
  }
  static bool all_finite(Doubles greatest) {
    return _mm512_cmpge_epu64_mask(_mm512_castpd_si512(greatest), _mm512_set1_epi64(0x7ff0000000000000LL)) == 0;
  }
  static Doubles greater(Doubles a, Doubles b) { return _mm512_max_pd(a, b); }
  static double largest_double(Doubles values) { return _mm512_reduce_max_pd(values); }
  static void store_doubles(Doubles values, double* lanes) {
    _mm512_storeu_pd(lanes, _mm512_add_pd(_mm512_loadu_pd(lanes), values));
  }

  static void store(Words words, void* to) { _mm512_storeu_si512(to, words); }
  template <typename Element>
  static Words small_magnitudes(Words words) {
    if constexpr (std::is_unsigned_v<Element>)
      return words;
    else
      return sizeof(Element) == 1 ? _mm512_abs_epi8(words) : _mm512_abs_epi16(words);
  }
  static Words max_bytes(Words a, Words b) { return _mm512_max_epu8(a, b); }
  static Words max_halves(Words a, Words b) { return _mm512_max_epu16(a, b); }
  static Words add_words(Words a, Words b) { return _mm512_add_epi32(a, b); }
  static Words signed_half_squares(Words words) { return _mm512_madd_epi16(words, words); }
  static Words byte_squares(Words words) {
    return _mm512_add_epi32(signed_half_squares(_mm512_and_si512(words, _mm512_set1_epi16(0xff))),
                            signed_half_squares(_mm512_srli_epi16(words, 8)));
  }
  static Words lower_halves(Words words) { return _mm512_and_si512(words, _mm512_set1_epi32(0xffff)); }
  static Words upper_halves(Words words) { return _mm512_srli_epi32(words, 16); }
  static Words square_words(Words words) { return _mm512_mullo_epi32(words, words); }
  static Sums add_words_to_sums(Sums sums, Words words) {
    const __m512i lower = _mm512_and_si512(words, _mm512_set1_epi64(0xffffffffLL));
    return _mm512_add_epi64(sums, _mm512_add_epi64(lower, _mm512_srli_epi64(words, 32)));
  }

  template <typename Element>
  static Words word_magnitudes(Words words) {
    return std::is_signed_v<Element> ? _mm512_abs_epi32(words) : words;
  }
  template <typename Element>
  static DoubleSquares add_word_squares(DoubleSquares sum, Words words) {
    const __m256i low = _mm512_castsi512_si256(words), high = _mm512_extracti64x4_epi64(words, 1);
    if constexpr (std::is_signed_v<Element>)
      return {_mm512_add_pd(sum.low, square_doubles(_mm512_cvtepi32_pd(low))),
              _mm512_add_pd(sum.high, square_doubles(_mm512_cvtepi32_pd(high)))};
    else
      return {_mm512_add_pd(sum.low, square_doubles(_mm512_cvtepu32_pd(low))),
              _mm512_add_pd(sum.high, square_doubles(_mm512_cvtepu32_pd(high)))};
  }
  template <typename Element>
  static Doubles to_doubles(Words words) {
    return std::is_signed_v<Element> ? _mm512_cvtepi64_pd(words) : _mm512_cvtepu64_pd(words);
  }
  static Doubles square_doubles(Doubles values) { return _mm512_mul_pd(values, values); }
  static Doubles double_magnitudes(Doubles values) { return _mm512_abs_pd(values); }

  static Words low_halves(Words words) { return _mm512_slli_epi32(words, 16); }
  static Words high_halves(Words words) { return _mm512_and_si512(words, _mm512_set1_epi32(-65536)); }
  template <int half>
  static Words widened(Words words) {
    return _mm512_castps_si512(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(words, half)));
  }
};

constexpr Table kAvx512 = table<Avx512>("avx512");

}  // namespace

const Table& avx512() { return kAvx512; }

}  // namespace lockstep::inspect::kernels
