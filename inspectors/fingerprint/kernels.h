// The inner loops of fingerprints, free of LibTorch: one table of functions per instruction set. All tables give the
// same bits.
//
// Hash: each 64 bytes are multiplied pairwise with keys as in NH (J. Black et al., "UMAC: Fast and Secure Message
// Authentication", 1999), twice, the second time with the keys shifted as UMAC's Toeplitz construction has it. The
// products are added up in eight lanes; after each stripe of 1,024 bytes the lanes are scrambled by a bijection, so
// that the position of a stripe counts. Threads divide the work by chunks of 64 KiB.
//
// Statistics are taken in the same pass, in lanes that are folded in a fixed order and without fused multiply-add, so
// that every instruction set and any number of threads give the same bits. Squares of 8 and 16 bits are added as
// integers, which is exact.
#pragma once
#include <array>
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
inline constexpr uint32_t kScramblePrime = 0x9e3779b1U;

/// The state of a chunk. Begins as zeros, and takes stripes in order.
struct alignas(64) Chunk {
  uint64_t hash[2][kHashLanes] = {};
  double squares[kSquareLanes] = {};  // sums, of finite elements
  double abs_max = 0;  // of finite elements
  int64_t nan_count = 0;
  int64_t inf_count = 0;
};

/// Adds `stripes` complete stripes at `data` (any alignment).
using Loop = void (*)(const uint8_t* data, size_t stripes, Chunk& chunk);

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

/// The fastest one that this machine supports. LOCKSTEP_SIMD=portable|avx2|avx512 selects another one, if the machine
/// supports it.
const Table& best();

/// Pseudo-random words (SplitMix64 of a fixed seed): a stripe's and the shift.
extern const std::array<uint32_t, kStripeWords + kToeplitzShift> kKeys;

/// Statistics of a stripe with values that are not finite, or whose squares do not fit into the element's type. The
/// same for every table.
void careful_float32(const uint8_t* stripe, Chunk& chunk);
void careful_float64(const uint8_t* stripe, Chunk& chunk);
void careful_bfloat16(const uint8_t* stripe, Chunk& chunk);
void careful_float16(const uint8_t* stripe, Chunk& chunk);

/// The finaliser of MurmurHash3, a bijection of 64 bits.
inline uint64_t mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33;
  value *= 0xc4ceb9fe1a85ec53ULL;
  value ^= value >> 33;
  return value;
}

}  // namespace lockstep::inspect::kernels
