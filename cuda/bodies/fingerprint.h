// The kernel that takes fingerprints of many tensors in one launch and one read of their memory, with the bits that the
// CPU's loops give (inspectors/fingerprint/loop.h). A block of 256 threads reads a chunk of 64 KiB: four threads a stripe
// of 1,024 bytes, each 16 of every 64 bytes, so that all that goes into one lane of a stripe is in one thread.
//
//   keys      copies the keys into shared memory
//   read      reads the chunk: each stripe's hash lanes, sums of squares, largest magnitude
//   judge     stripes with NaN, Inf, huge or tiny values are read again, with care
//   chain     goes through the stripes in order: one thread a lane
//   fold      lanes → the chunk's result, in global memory
//   ticket    whether this block is the last of its group of 64 chunks to come this far; if not, it ends
//   group     combines the group's results in order
//   ticket    whether it is the last group of its tensor
//   tensor    combines the groups in order, and writes the fingerprint
//
// Who comes last does not matter for the result: it is combined in the order of the chunks.
#pragma once
#include <cmath>

#include "cuda/bodies/host_device.h"
#include "cuda/bodies/records.h"

namespace lockstep::cuda {

inline constexpr uint32_t kFingerprintThreads = 256;
inline constexpr uint32_t kStripes = kernels::kChunkBytes / kernels::kStripeBytes;
inline constexpr uint32_t kQuads = 4;  // threads of a stripe
static_assert(kStripes * kQuads == kFingerprintThreads);
inline constexpr uint32_t kReducers = 32;

/// What a launch leaves of a tensor: the fields of inspect::Fingerprint in their order.
struct FingerprintRecord {
  uint64_t hash[2];
  int64_t nan_count, inf_count;
  double norm, abs_max;
};

struct FingerprintLaunch {
  const TensorRecord* tensors;
  const Strides* strides;
  const uint32_t* tensor_of_chunk;
  const kernels::Keys* keys;
  kernels::Result* chunk_results;
  kernels::Result* group_results;
  uint32_t* group_tickets;  // zeros before the launch
  uint32_t* tensor_tickets;  // likewise
  FingerprintRecord* output;  // one a tensor; those of empty tensors are not written
};

struct FingerprintShared {
  alignas(16) uint64_t hash[kStripes][2 * kernels::kHashLanes];
  alignas(16) double squares[kStripes][kernels::kSquareLanes];
  alignas(16) float float_squares[kStripes][2 * kernels::kSquareLanes];
  kernels::Keys keys;
  uint64_t greatest[kFingerprintThreads];  // as the bits of a double; NaN and Inf are the greatest of all
  uint64_t largest[kFingerprintThreads];  // of finite elements
  uint32_t counts[kFingerprintThreads];  // NaN in the low half, Inf in the high
  uint32_t careful[kStripes];
  uint64_t hash_lanes[2 * kernels::kHashLanes];
  double square_lanes[kernels::kSquareLanes];
  uint64_t largest_of[kReducers];
  uint32_t nan_of[kReducers], inf_of[kReducers];
  uint32_t last;
};

struct FingerprintContext {
  const FingerprintLaunch& launch;
  FingerprintShared& shared;
  uint32_t block, thread;

  LOCKSTEP_HOST_DEVICE const TensorRecord& tensor() const { return launch.tensors[launch.tensor_of_chunk[block]]; }
  LOCKSTEP_HOST_DEVICE int64_t chunk_begin() const {
    return static_cast<int64_t>(block - tensor().first_chunk) * static_cast<int64_t>(kernels::kChunkBytes);
  }
  LOCKSTEP_HOST_DEVICE uint32_t chunk_bytes() const {
    const int64_t left = tensor().bytes - chunk_begin();
    return static_cast<uint32_t>(
        left < static_cast<int64_t>(kernels::kChunkBytes) ? left : static_cast<int64_t>(kernels::kChunkBytes));
  }
  LOCKSTEP_HOST_DEVICE uint32_t stripe() const { return thread / kQuads; }
  LOCKSTEP_HOST_DEVICE uint32_t quad() const { return thread % kQuads; }
};

// ---- read ----

/// Elements that become float32: their squares in float32, in 4 lanes of 16, or in 8 of 32 (float16).
template <kernels::Kind kind>
struct FloatSums {
  static constexpr bool kHalf = kind == kernels::Kind::float16;
  float squares[kHalf ? 8 : 4] = {};
  uint32_t greatest = 0;

  LOCKSTEP_HOST_DEVICE void add_value(float value, uint32_t lane) {
    squares[lane] += value * value;
    const uint32_t magnitude = bits_of(value) & 0x7fffffffU;
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  LOCKSTEP_HOST_DEVICE void add(const Piece& piece) {
    LOCKSTEP_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t word = piece.words[i];
      if constexpr (kind == kernels::Kind::float32) {
        add_value(float_of(word), i);
      } else if constexpr (kind == kernels::Kind::bfloat16) {
        add_value(float_of(word << 16), i);
        add_value(float_of(word & 0xffff0000U), i);
      } else {
        add_value(float_of_half(word & 0xffffU), 2 * i);
        add_value(float_of_half(word >> 16), 2 * i + 1);
      }
    }
  }
  LOCKSTEP_HOST_DEVICE void finish(FingerprintContext& context) const {
    constexpr uint32_t kLanes = kHalf ? 8 : 4;
    float* to = context.shared.float_squares[context.stripe()] + context.quad() * kLanes;
    for (uint32_t i = 0; i < kLanes; ++i) to[i] = squares[i];
    context.shared.greatest[context.thread] = bits_of(static_cast<double>(float_of(greatest)));
  }
};

/// 8-bit floats: as float32, without those that are not finite, which are counted.
template <kernels::Kind kind>
struct Float8Sums {
  static constexpr bool kE5m2 = kind == kernels::Kind::float8_e5m2 || kind == kernels::Kind::float8_e5m2fnuz;
  static constexpr bool kFnuz = kind == kernels::Kind::float8_e5m2fnuz || kind == kernels::Kind::float8_e4m3fnuz;
  static constexpr uint32_t kMantissaBits = kE5m2 ? 2 : 3;
  static constexpr uint32_t kBias = (kE5m2 ? 15U : 7U) + (kFnuz ? 1U : 0U);
  // The magnitudes from which on a value is not finite; of fnuz types the only one is the negative zero.
  static constexpr uint32_t kBeyond = kFnuz ? 0x80U : kind == kernels::Kind::float8_e5m2 ? 0x7cU : 0x7fU;
  float squares[4] = {};
  float greatest = 0;
  uint32_t counts = 0;

  LOCKSTEP_HOST_DEVICE void add(const Piece& piece) {
    LOCKSTEP_UNROLL
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t byte = (piece.words[i / 4] >> (8 * (i % 4))) & 0xffU, magnitude = byte & 0x7fU;
      if (kFnuz ? byte == 0x80U : magnitude >= kBeyond) {
        counts += kind == kernels::Kind::float8_e5m2 && magnitude == kBeyond ? 0x10000U : 1U;
      } else {
        // Exact for subnormal values, too: a power of 2 moves the exponent.
        const float value = float_of(magnitude << (23U - kMantissaBits)) * float_of((254U - kBias) << 23);
        squares[i / 4] += value * value;
        greatest = value > greatest ? value : greatest;
      }
    }
  }
  LOCKSTEP_HOST_DEVICE void finish(FingerprintContext& context) const {
    float* to = context.shared.float_squares[context.stripe()] + context.quad() * 4;
    for (uint32_t i = 0; i < 4; ++i) to[i] = squares[i];
    context.shared.greatest[context.thread] = bits_of(static_cast<double>(greatest));
    context.shared.counts[context.thread] = counts;
  }
};

/// Elements whose squares are taken in float64: 4 lanes of 16 for 32 bits, 2 of 8 for 64 bits.
template <kernels::Kind kind>
struct DoubleSums {
  static constexpr bool kWords = kind == kernels::Kind::uint32 || kind == kernels::Kind::int32;
  static constexpr uint32_t kLanes = kWords ? 4 : 2;
  double squares[kLanes] = {};
  uint64_t greatest = 0;

  LOCKSTEP_HOST_DEVICE static double value(const Piece& piece, uint32_t lane) {
    if constexpr (kind == kernels::Kind::uint32) return static_cast<double>(piece.words[lane]);
    if constexpr (kind == kernels::Kind::int32) return static_cast<double>(static_cast<int32_t>(piece.words[lane]));
    const uint64_t bits = piece.words[2 * lane % 4] | uint64_t{piece.words[(2 * lane + 1) % 4]} << 32;
    if constexpr (kind == kernels::Kind::uint64) return static_cast<double>(bits);
    if constexpr (kind == kernels::Kind::int64) return static_cast<double>(static_cast<int64_t>(bits));
    return double_of(bits);
  }
  LOCKSTEP_HOST_DEVICE void add(const Piece& piece) {
    LOCKSTEP_UNROLL
    for (uint32_t i = 0; i < kLanes; ++i) {
      const double each = value(piece, i);
      squares[i] += each * each;
      const uint64_t magnitude = bits_of(each) & 0x7fffffffffffffffULL;
      greatest = magnitude > greatest ? magnitude : greatest;
    }
  }
  LOCKSTEP_HOST_DEVICE void finish(FingerprintContext& context) const {
    double* to = context.shared.squares[context.stripe()] + context.quad() * kLanes;
    for (uint32_t i = 0; i < kLanes; ++i) to[i] = squares[i];
    if constexpr (!kWords)
      for (uint32_t i = 0; i < kLanes; ++i) to[kernels::kHashLanes + i] = 0;
    context.shared.greatest[context.thread] = greatest;
  }
};

/// 8 and 16 bits: squares are added as integers, in 2 lanes of 8.
template <kernels::Kind kind>
struct SmallIntegerSums {
  static constexpr bool kByte = kind == kernels::Kind::uint8 || kind == kernels::Kind::int8;
  static constexpr bool kSigned = kind == kernels::Kind::int8 || kind == kernels::Kind::int16;
  uint64_t squares[2] = {};
  uint32_t greatest = 0;

  LOCKSTEP_HOST_DEVICE void add(const Piece& piece) {
    constexpr uint32_t kBits = kByte ? 8 : 16, kMask = (1U << kBits) - 1U, kSign = 1U << (kBits - 1);
    LOCKSTEP_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      LOCKSTEP_UNROLL
      for (uint32_t shift = 0; shift < 32; shift += kBits) {
        uint32_t magnitude = (piece.words[i] >> shift) & kMask;
        if (kSigned && magnitude >= kSign) magnitude = (1U << kBits) - magnitude;
        squares[i / 2] += magnitude * magnitude;  // less than 2^32
        greatest = magnitude > greatest ? magnitude : greatest;
      }
    }
  }
  LOCKSTEP_HOST_DEVICE void finish(FingerprintContext& context) const {
    double* to = context.shared.squares[context.stripe()] + context.quad() * 2;
    for (uint32_t i = 0; i < 2; ++i) {
      to[i] = static_cast<double>(squares[i]);
      to[kernels::kHashLanes + i] = 0;
    }
    context.shared.greatest[context.thread] = bits_of(static_cast<double>(greatest));
  }
};

struct NoSums {
  LOCKSTEP_HOST_DEVICE void add(const Piece&) {}
  LOCKSTEP_HOST_DEVICE void finish(FingerprintContext& context) const {
    double* to = context.shared.squares[context.stripe()] + context.quad() * 4;
    for (uint32_t i = 0; i < 4; ++i) to[i] = 0;
    context.shared.greatest[context.thread] = 0;
  }
};

/// This thread's part of its stripe. `load` gives the 16 bytes at an offset within the chunk.
template <typename Sums, uint32_t batch, typename Load>
LOCKSTEP_HOST_DEVICE void read_stripe(FingerprintContext& context, const Load& load) {
  const uint32_t quad = context.quad();
  const uint32_t begin = context.stripe() * static_cast<uint32_t>(kernels::kStripeBytes) + quad * 16;
  constexpr uint32_t kBlocks = kernels::kStripeBytes / kernels::kBlockBytes;
  uint64_t first[2] = {}, second[2] = {};
  Sums sums;
  for (uint32_t block = 0; block < kBlocks; block += batch) {
    Piece pieces[batch];
    LOCKSTEP_UNROLL
    for (uint32_t i = 0; i < batch; ++i)
      pieces[i] = load(begin + (block + i) * static_cast<uint32_t>(kernels::kBlockBytes));
    LOCKSTEP_UNROLL
    for (uint32_t i = 0; i < batch; ++i) {
      const uint32_t* w = pieces[i].words;
      const uint32_t* key = context.shared.keys.words + (block + i) * 16 + quad * 4;
      const uint32_t* shifted = key + kernels::kToeplitzShift;
      first[0] += uint64_t{w[0] + key[0]} * (w[1] + key[1]);
      first[1] += uint64_t{w[2] + key[2]} * (w[3] + key[3]);
      second[0] += uint64_t{w[0] + shifted[0]} * (w[1] + shifted[1]);
      second[1] += uint64_t{w[2] + shifted[2]} * (w[3] + shifted[3]);
      sums.add(pieces[i]);
    }
  }
  uint64_t* to = context.shared.hash[context.stripe()] + quad * 2;
  to[0] = first[0];
  to[1] = first[1];
  to[kernels::kHashLanes] = second[0];
  to[kernels::kHashLanes + 1] = second[1];
  sums.finish(context);
}

template <typename Sums>
LOCKSTEP_HOST_DEVICE void read_with(FingerprintContext& context) {
  context.shared.counts[context.thread] = 0;
  const Reader reader(context.tensor(), context.launch.strides);
  const int64_t begin = context.chunk_begin();
  const uint32_t bytes = context.chunk_bytes(), stripe = context.stripe();
  if (reader.in_pieces() && (stripe + 1) * kernels::kStripeBytes <= bytes) {
    const uint8_t* data = reader.contiguous_at(begin);
    read_stripe<Sums, 8>(context, [data](uint32_t offset) { return load_piece(data + offset); });
  } else if (stripe * kernels::kStripeBytes < bytes) {
    read_stripe<Sums, 1>(context, [&](uint32_t offset) { return reader.piece(begin + offset); });
  } else {
    context.shared.greatest[context.thread] = 0;
  }
}

LOCKSTEP_HOST_DEVICE void fingerprint_read(FingerprintContext& context) {
  using kernels::Kind;
  switch (context.tensor().kind) {
    case Kind::bytes:
      return read_with<NoSums>(context);
    case Kind::float32:
      return read_with<FloatSums<Kind::float32>>(context);
    case Kind::float64:
      return read_with<DoubleSums<Kind::float64>>(context);
    case Kind::bfloat16:
      return read_with<FloatSums<Kind::bfloat16>>(context);
    case Kind::float16:
      return read_with<FloatSums<Kind::float16>>(context);
    case Kind::uint8:
      return read_with<SmallIntegerSums<Kind::uint8>>(context);
    case Kind::int8:
      return read_with<SmallIntegerSums<Kind::int8>>(context);
    case Kind::uint16:
      return read_with<SmallIntegerSums<Kind::uint16>>(context);
    case Kind::int16:
      return read_with<SmallIntegerSums<Kind::int16>>(context);
    case Kind::uint32:
      return read_with<DoubleSums<Kind::uint32>>(context);
    case Kind::int32:
      return read_with<DoubleSums<Kind::int32>>(context);
    case Kind::uint64:
      return read_with<DoubleSums<Kind::uint64>>(context);
    case Kind::int64:
      return read_with<DoubleSums<Kind::int64>>(context);
    case Kind::float8_e5m2:
      return read_with<Float8Sums<Kind::float8_e5m2>>(context);
    case Kind::float8_e4m3fn:
      return read_with<Float8Sums<Kind::float8_e4m3fn>>(context);
    case Kind::float8_e5m2fnuz:
      return read_with<Float8Sums<Kind::float8_e5m2fnuz>>(context);
    case Kind::float8_e4m3fnuz:
      return read_with<Float8Sums<Kind::float8_e4m3fnuz>>(context);
  }
}

// ---- judge ----

/// A stripe's elements of four lanes of 16, one after the other, in float64.
template <typename Element, typename ToDouble>
LOCKSTEP_HOST_DEVICE void read_carefully(FingerprintContext& context, const ToDouble& to_double) {
  const Reader reader(context.tensor(), context.launch.strides);
  const int64_t begin = context.chunk_begin();
  const uint32_t bytes = context.chunk_bytes(), stripe = context.stripe() * kernels::kStripeBytes;
  uint64_t largest = 0;
  uint32_t counts = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t lane = context.quad() * 4 + i;
    double squares = 0;
    for (uint32_t element = lane; element < kernels::kStripeBytes / sizeof(Element); element += kernels::kSquareLanes) {
      const uint32_t offset = stripe + element * static_cast<uint32_t>(sizeof(Element));
      if (offset >= bytes) break;
      const double value = to_double(reader.element<Element>(begin + offset));
      const uint64_t magnitude = bits_of(value) & 0x7fffffffffffffffULL;
      if (magnitude < 0x7ff0000000000000ULL) {
        squares += value * value;
        largest = magnitude > largest ? magnitude : largest;
      } else {
        counts += magnitude == 0x7ff0000000000000ULL ? 0x10000U : 1U;
      }
    }
    context.shared.squares[context.stripe()][lane] = squares;
  }
  context.shared.largest[context.thread] = largest;
  context.shared.counts[context.thread] = counts;
}

LOCKSTEP_HOST_DEVICE void fingerprint_judge(FingerprintContext& context) {
  using kernels::Kind;
  const Kind kind = context.tensor().kind;
  FingerprintShared& shared = context.shared;
  const uint32_t stripe = context.stripe(), quad = context.quad();
  shared.largest[context.thread] = shared.greatest[context.thread];
  if (stripe * kernels::kStripeBytes >= context.chunk_bytes()) return;
  const bool small_float = kind == Kind::float32 || kind == Kind::bfloat16 || kind == Kind::float16;
  bool usual = true;
  if (small_float || kind == Kind::float64) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < kQuads; ++i) {
      const uint64_t each = shared.greatest[stripe * kQuads + i];
      most = each > most ? each : most;
    }
    if (small_float) {
      const uint64_t smallest = bits_of(static_cast<double>(float_of(kernels::kSmallest)));
      const uint64_t beyond = bits_of(static_cast<double>(float_of(kernels::kBeyond)));
      usual = most < beyond && (most >= smallest || most == 0);
    } else {
      usual = most < 0x7ff0000000000000ULL;
    }
  }
  if (quad == 0) shared.careful[stripe] = usual ? 0 : 1;
  if (usual) {
    if (small_float || kind >= Kind::float8_e5m2) {
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t lane = quad * 4 + i;
        float sum = shared.float_squares[stripe][lane];
        if (kind == Kind::float16) sum += shared.float_squares[stripe][kernels::kSquareLanes + lane];
        shared.squares[stripe][lane] = static_cast<double>(sum);
      }
    }
    return;
  }
  switch (kind) {
    case Kind::float32:
      return read_carefully<uint32_t>(context, [](uint32_t bits) { return static_cast<double>(float_of(bits)); });
    case Kind::bfloat16:
      return read_carefully<uint16_t>(
          context, [](uint16_t bits) { return static_cast<double>(float_of(uint32_t{bits} << 16)); });
    case Kind::float16:
      return read_carefully<uint16_t>(context, [](uint16_t bits) { return static_cast<double>(float_of_half(bits)); });
    default:
      return read_carefully<uint64_t>(context, [](uint64_t bits) { return double_of(bits); });
  }
}

// ---- chain ----

LOCKSTEP_HOST_DEVICE void chain_hashes(FingerprintContext& context, uint32_t lane) {
  const uint32_t stripes = (context.chunk_bytes() + kernels::kStripeBytes - 1) / kernels::kStripeBytes;
  uint64_t hash = 0;
  for (uint32_t stripe = 0; stripe < stripes; ++stripe) {
    hash += context.shared.hash[stripe][lane];
    hash = (hash ^ (hash >> 47)) * kernels::kScramblePrime;
  }
  context.shared.hash_lanes[lane] = hash;
}

/// Stripes that were read with care first, then the others, then the one that the tensor's end cuts off: the order in
/// which the CPU's loops add them up.
LOCKSTEP_HOST_DEVICE void chain_squares(FingerprintContext& context, uint32_t lane) {
  const FingerprintShared& shared = context.shared;
  const uint32_t bytes = context.chunk_bytes(), stripes = bytes / kernels::kStripeBytes;
  double careful = 0, usual = 0;
  for (uint32_t stripe = 0; stripe < stripes; ++stripe) {
    const double squares = shared.squares[stripe][lane];
    if (shared.careful[stripe])
      careful += squares;
    else
      usual += squares;
  }
  double sum = careful + usual;
  if (stripes * kernels::kStripeBytes < bytes) sum += shared.squares[stripes][lane];
  context.shared.square_lanes[lane] = sum;
}

LOCKSTEP_HOST_DEVICE void reduce_counts(FingerprintContext& context, uint32_t reducer) {
  uint64_t largest = 0;
  uint32_t nan_count = 0, inf_count = 0;
  for (uint32_t i = reducer; i < kFingerprintThreads; i += kReducers) {
    largest = context.shared.largest[i] > largest ? context.shared.largest[i] : largest;
    nan_count += context.shared.counts[i] & 0xffffU;
    inf_count += context.shared.counts[i] >> 16;
  }
  context.shared.largest_of[reducer] = largest;
  context.shared.nan_of[reducer] = nan_count;
  context.shared.inf_of[reducer] = inf_count;
}

LOCKSTEP_HOST_DEVICE void fingerprint_chain(FingerprintContext& context) {
  const uint32_t warp = context.thread / 32, lane = context.thread % 32;
  if (warp == 0 && lane < 2 * kernels::kHashLanes) chain_hashes(context, lane);
  if (warp == 1 && lane < kernels::kSquareLanes) chain_squares(context, lane);
  if (warp == 2) reduce_counts(context, lane);
}

// ---- fold, group, tensor ----

// Each half of a hash, the squares and the rest are combined by a warp of their own, at the same time.
inline constexpr uint32_t kParts = 4;
LOCKSTEP_HOST_DEVICE uint32_t part_of(const FingerprintContext& context) {
  return context.thread % 32 == 0 ? context.thread / 32 : kParts;
}

LOCKSTEP_HOST_DEVICE void fingerprint_fold(FingerprintContext& context) {
  FingerprintShared& shared = context.shared;
  kernels::Result& result = context.launch.chunk_results[context.block];
  const uint64_t bytes = context.chunk_bytes();
  switch (part_of(context)) {
    case 0:
      result.hash[0] = kernels::fold_lanes(shared.hash_lanes, bytes);
      break;
    case 1:
      result.hash[1] = kernels::fold_lanes(shared.hash_lanes + kernels::kHashLanes, ~bytes);
      break;
    case 2:
      result.squares = kernels::fold_squares(shared.square_lanes);
      break;
    case 3: {
      uint64_t largest = 0;
      int64_t nan_count = 0, inf_count = 0;
      for (uint32_t i = 0; i < kReducers; ++i) {
        largest = shared.largest_of[i] > largest ? shared.largest_of[i] : largest;
        nan_count += shared.nan_of[i];
        inf_count += shared.inf_of[i];
      }
      result.abs_max = double_of(largest);
      result.nan_count = nan_count;
      result.inf_count = inf_count;
      break;
    }
    default:
      return;
  }
  fence();
}

/// Into shared.last: whether all others of `count` have come here before. What they had written is seen from now on.
LOCKSTEP_HOST_DEVICE void take_ticket(FingerprintContext& context, uint32_t* tickets, uint32_t count) {
  if (context.thread != 0) return;
  fence();
  context.shared.last = count == 1 || atomic_add(tickets, 1) == count - 1 ? 1 : 0;
  fence();
}

/// One part of `count` results, on top of what is in `total`, in order.
LOCKSTEP_HOST_DEVICE void combine(uint32_t part, const kernels::Result* results, uint32_t count,
                                  kernels::Result& total) {
  switch (part) {
    case 0:
      LOCKSTEP_UNROLL_BY_8
      for (uint32_t i = 0; i < count; ++i) total.hash[0] = kernels::combine_first(total.hash[0], results[i].hash[0]);
      break;
    case 1:
      LOCKSTEP_UNROLL_BY_8
      for (uint32_t i = 0; i < count; ++i) total.hash[1] = kernels::combine_second(total.hash[1], results[i].hash[1]);
      break;
    case 2:
      LOCKSTEP_UNROLL_BY_8
      for (uint32_t i = 0; i < count; ++i) total.squares += results[i].squares;
      break;
    default:
      for (uint32_t i = 0; i < count; ++i) {
        total.abs_max = results[i].abs_max > total.abs_max ? results[i].abs_max : total.abs_max;
        total.nan_count += results[i].nan_count;
        total.inf_count += results[i].inf_count;
      }
  }
}

/// The group of this block's chunk among its tensor's.
LOCKSTEP_HOST_DEVICE uint32_t group_of(const FingerprintContext& context) {
  return (context.block - context.tensor().first_chunk) / static_cast<uint32_t>(kernels::kGroupChunks);
}
LOCKSTEP_HOST_DEVICE uint32_t chunks_of(const TensorRecord& tensor, uint32_t group) {
  constexpr auto kMost = static_cast<uint32_t>(kernels::kGroupChunks);
  const uint32_t left = tensor.chunks - group * kMost;
  return left < kMost ? left : kMost;
}

LOCKSTEP_HOST_DEVICE void fingerprint_group_ticket(FingerprintContext& context) {
  const uint32_t group = group_of(context);
  take_ticket(context, context.launch.group_tickets + context.tensor().first_group + group,
              chunks_of(context.tensor(), group));
}

LOCKSTEP_HOST_DEVICE void fingerprint_group(FingerprintContext& context) {
  const uint32_t part = part_of(context);
  if (part >= kParts) return;
  fence();
  const TensorRecord& tensor = context.tensor();
  const uint32_t group = group_of(context);
  const kernels::Result* results =
      context.launch.chunk_results + tensor.first_chunk + group * static_cast<uint32_t>(kernels::kGroupChunks);
  kernels::Result total;
  combine(part, results, chunks_of(tensor, group), total);
  kernels::Result& result = context.launch.group_results[tensor.first_group + group];
  switch (part) {
    case 0:
      result.hash[0] = total.hash[0];
      break;
    case 1:
      result.hash[1] = total.hash[1];
      break;
    case 2:
      result.squares = total.squares;
      break;
    default:
      result.abs_max = total.abs_max;
      result.nan_count = total.nan_count;
      result.inf_count = total.inf_count;
  }
  fence();
}

LOCKSTEP_HOST_DEVICE void fingerprint_tensor_ticket(FingerprintContext& context) {
  take_ticket(context, context.launch.tensor_tickets + context.launch.tensor_of_chunk[context.block],
              context.tensor().groups);
}

LOCKSTEP_HOST_DEVICE void fingerprint_tensor(FingerprintContext& context) {
  const uint32_t part = part_of(context);
  if (part >= kParts) return;
  fence();
  const TensorRecord& tensor = context.tensor();
  kernels::Result total;
  total.hash[0] = tensor.start_hash[0];
  total.hash[1] = tensor.start_hash[1];
  combine(part, context.launch.group_results + tensor.first_group, tensor.groups, total);
  FingerprintRecord& record = context.launch.output[context.launch.tensor_of_chunk[context.block]];
  switch (part) {
    case 0:
      record.hash[0] = total.hash[0];
      break;
    case 1:
      record.hash[1] = total.hash[1];
      break;
    case 2:
      record.norm = sqrt(total.squares);
      break;
    default:
      record.abs_max = total.abs_max;
      record.nan_count = total.nan_count;
      record.inf_count = total.inf_count;
  }
}

// ---- the kernel ----

LOCKSTEP_HOST_DEVICE void fingerprint_keys(FingerprintContext& context) {
  constexpr uint32_t kCount = sizeof(kernels::Keys::words) / sizeof(uint32_t);
  for (uint32_t i = context.thread; i < kCount; i += kFingerprintThreads)
    context.shared.keys.words[i] = context.launch.keys->words[i];
}

inline constexpr uint32_t kFingerprintPhases = 9;

template <uint32_t phase>
LOCKSTEP_HOST_DEVICE void fingerprint_phase(FingerprintContext& context) {
  if constexpr (phase == 0) fingerprint_keys(context);
  if constexpr (phase == 1) fingerprint_read(context);
  if constexpr (phase == 2) fingerprint_judge(context);
  if constexpr (phase == 3) fingerprint_chain(context);
  if constexpr (phase == 4) fingerprint_fold(context);
  if constexpr (phase == 5) fingerprint_group_ticket(context);
  if constexpr (phase == 6) fingerprint_group(context);
  if constexpr (phase == 7) fingerprint_tensor_ticket(context);
  if constexpr (phase == 8) fingerprint_tensor(context);
}

/// Whether the block goes on after `phase`; the same for all of its threads.
LOCKSTEP_HOST_DEVICE bool fingerprint_goes_on(uint32_t phase, const FingerprintShared& shared) {
  return (phase != 5 && phase != 7) || shared.last != 0;
}

}  // namespace lockstep::cuda
