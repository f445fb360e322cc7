// The inner loops of fingerprints, free of LibTorch: one table of functions per instruction set. All tables give the
// same bits, and so does the kernel for GPUs (cuda/bodies/fingerprint.h), which shares the constants and the constexpr
// functions of this header.
//
// Hash: each 64 bytes are multiplied pairwise with keys as in NH (J. Black et al., "UMAC: Fast and Secure Message
// Authentication", 1999), twice, the second time with the keys shifted as UMAC's Toeplitz construction has it. The
// products are added up in eight lanes; after each stripe of 1,024 bytes the lanes are scrambled by a bijection, so
// that the position of a stripe counts. Threads divide the work by chunks of 64 KiB. 64 chunks are a group: the results
// of a group are combined in order, then those of the groups, so that threads can divide this work as well.
//
// Statistics are taken in the same pass, in lanes that are folded in a fixed order and without fused multiply-add, so
// that every instruction set and any number of threads give the same bits. Every stripe has sums of its own, which are
// added to the chunk's when it ends. Squares of 8 and 16 bits are added as integers, which is exact.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::inspect::kernels {

inline constexpr size_t kBlockBytes = 64;
inline constexpr size_t kStripeBytes = 1024;
inline constexpr size_t kChunkBytes = 64 * 1024;
inline constexpr size_t kStripeWords = kStripeBytes / 4;
inline constexpr size_t kToeplitzShift = 4;  // words
inline constexpr size_t kHashLanes = 8;
inline constexpr size_t kSquareLanes = 16;
inline constexpr size_t kGroupChunks = 64;
inline constexpr uint32_t kScramblePrime = 0x9e3779b1U;

/// The state of a chunk. It begins as zeros, and takes stripes in order.
struct alignas(64) Chunk {
  uint64_t hash[2][kHashLanes] = {};
  double squares[kSquareLanes] = {};  // sums, of finite elements
  double abs_max = 0;  // of finite elements
  int64_t nan_count = 0;
  int64_t inf_count = 0;
};

/// Adds `stripes` complete stripes to each of `count` chunks, one to kSideBySide. Those of the first are at `data` (any
/// alignment), those of each other one kChunkBytes further. Several chunks are read in turns, since memory delivers more
/// to a processor that reads at several places.
using Loop = void (*)(const uint8_t* data, size_t stripes, Chunk* chunks, size_t count);
inline constexpr size_t kSideBySide = 4;

struct Table {
  const char* name;
  Loop bytes;  // the hash alone
  Loop float32;
  Loop float64;
  Loop bfloat16;
  Loop float16;
  Loop uint8;  // bool, too
  Loop int8;
  Loop uint16;
  Loop int16;
  Loop uint32;
  Loop int32;
  Loop uint64;
  Loop int64;
};

const Table& portable();
const Table& avx2();  // only where has_avx2()
const Table& avx512();  // only where has_avx512()
bool has_avx2();
bool has_avx512();

/// Returns the fastest table that this machine supports. LOCKSTEP_SIMD=portable|avx2|avx512 selects another one, if the
/// machine supports it.
const Table& best();

/// Keys are pseudo-random words (SplitMix64 of a fixed seed): a stripe's and the shift.
struct Keys {
  alignas(64) uint32_t words[kStripeWords + kToeplitzShift];
};
constexpr Keys make_keys() {
  Keys keys{};
  uint64_t state = 0x10c57e9;
  for (uint32_t& word : keys.words) {
    uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    word = static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
  }
  return keys;
}
extern const Keys kKeys;

/// Take statistics of a stripe with values that are not finite, or whose squares do not fit into the element's type.
/// They are the same for every table.
void careful_float32(const uint8_t* stripe, Chunk& chunk);
void careful_float64(const uint8_t* stripe, Chunk& chunk);
void careful_bfloat16(const uint8_t* stripe, Chunk& chunk);
void careful_float16(const uint8_t* stripe, Chunk& chunk);

/// Is the finaliser of MurmurHash3, a bijection of 64 bits.
constexpr uint64_t mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ULL;
  value ^= value >> 33;
  return value;
}

/// These are the two halves of combine() in fingerprint.h; the order counts.
constexpr uint64_t combine_first(uint64_t left, uint64_t right) { return mix(left * 0x9e3779b97f4a7c15ULL + right); }
constexpr uint64_t combine_second(uint64_t left, uint64_t right) { return mix(left * 0xd6e8feb86659fd93ULL + right); }

/// Returns half of a chunk's hash. `start` is the number of its bytes, or the complement for the second half.
constexpr uint64_t fold_lanes(const uint64_t* lanes, uint64_t start) {
  for (size_t lane = 0; lane < kHashLanes; ++lane) start = mix(start ^ lanes[lane]) + 0x9e3779b97f4a7c15ULL;
  return start;
}
constexpr double fold_squares(const double* s) {
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) sum += (s[i] + s[i + 4]) + (s[i + 8] + s[i + 12]);
  return sum;
}

/// Holds the result of a chunk, or of a group of chunks.
struct Result {
  uint64_t hash[2] = {};
  double squares = 0, abs_max = 0;
  int64_t nan_count = 0, inf_count = 0;

  /// Adds the chunk that comes next in the group, or the group that comes next in the tensor.
  constexpr void add(const Result& next) {
    hash[0] = combine_first(hash[0], next.hash[0]);
    hash[1] = combine_second(hash[1], next.hash[1]);
    squares += next.squares;
    if (next.abs_max > abs_max) abs_max = next.abs_max;
    nan_count += next.nan_count;
    inf_count += next.inf_count;
  }
};

/// Says how the elements of a tensor are read; complex numbers as two elements of their parts' type.
enum class Kind : uint8_t {
  bytes,  // no statistics
  float32,
  float64,
  bfloat16,
  float16,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float8_e5m2,
  float8_e4m3fn,
  float8_e5m2fnuz,
  float8_e4m3fnuz,
};

// Squares of float32 are added in float32 within a stripe where they neither overflow nor vanish: largest magnitude
// from 2^-50 to 2^60, compared as bits. Other stripes take the exact path.
inline constexpr uint32_t kSmallest = (127U - 50U) << 23;
inline constexpr uint32_t kBeyond = (127U + 60U) << 23;

/// Returns an 8-bit float as the bits of a float32. NaN and Inf become float32's.
template <uint32_t mantissa_bits, uint32_t bias, bool has_inf, bool unsigned_zero>
constexpr uint32_t widened_float8(uint32_t byte) {
  const uint32_t magnitude = byte & 0x7fU, sign = (byte & 0x80U) << 24;
  if constexpr (unsigned_zero) {
    if (byte == 0x80U) return 0x7fc00000U;
  } else if constexpr (has_inf) {
    constexpr uint32_t kInf = 0x1fU << mantissa_bits;
    if (magnitude >= kInf) return sign | (magnitude == kInf ? 0x7f800000U : 0x7fc00000U);
  } else {
    if (magnitude == 0x7fU) return sign | 0x7fc00000U;
  }
  uint32_t exponent = magnitude >> mantissa_bits, fraction = magnitude & ((1U << mantissa_bits) - 1U);
  if (magnitude == 0) return sign;
  if (exponent == 0) {  // subnormal: the leading bit becomes the implicit one
    exponent = 1;
    while (fraction < (1U << mantissa_bits)) {
      fraction <<= 1;
      --exponent;  // below zero it wraps around, and adding the difference of the biases brings it back
    }
    fraction &= (1U << mantissa_bits) - 1U;
  }
  return sign | ((exponent + 127U - bias) << 23) | (fraction << (23U - mantissa_bits));
}
constexpr uint32_t widened_float8(Kind kind, uint32_t byte) {
  switch (kind) {
    case Kind::float8_e5m2:
      return widened_float8<2, 15, true, false>(byte);
    case Kind::float8_e4m3fn:
      return widened_float8<3, 7, false, false>(byte);
    case Kind::float8_e5m2fnuz:
      return widened_float8<2, 16, false, true>(byte);
    default:
      return widened_float8<3, 8, false, true>(byte);
  }
}

}  // namespace lockstep::inspect::kernels
