// The phase "read" of the fingerprint kernel: hash lanes, sums of squares and the largest magnitude of each stripe.
#pragma once
#include "cuda/bodies/bad_values.h"
#include "cuda/bodies/fingerprint_launch.h"

namespace lockstep::cuda {

/// Takes squares of elements that become float32 in float32, in 4 lanes of 16, or in 8 of 32 (float16).
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

/// Takes 8-bit floats as float32, without those that are not finite, which are counted.
template <kernels::Kind kind>
struct Float8Sums {
  static constexpr bool kE5m2 = kind == kernels::Kind::float8_e5m2 || kind == kernels::Kind::float8_e5m2fnuz;
  static constexpr bool kFnuz = kind == kernels::Kind::float8_e5m2fnuz || kind == kernels::Kind::float8_e4m3fnuz;
  static constexpr uint32_t kMantissaBits = kE5m2 ? 2 : 3;
  static constexpr uint32_t kBias = (kE5m2 ? 15U : 7U) + (kFnuz ? 1U : 0U);
  // A magnitude from here on is not finite; fnuz types have the negative zero only.
  static constexpr uint32_t kBeyond = kFnuz ? 0x80U : kind == kernels::Kind::float8_e5m2 ? 0x7cU : 0x7fU;
  float squares[4] = {};
  uint32_t greatest = 0;  // a magnitude, where a float32 has it
  uint32_t counts = 0;

  static constexpr uint32_t kShift = 23U - kMantissaBits;
  /// Is exact for subnormal values, too: a power of 2 moves the exponent.
  LOCKSTEP_HOST_DEVICE static float value_of(uint32_t shifted) {
    return float_of(shifted) * float_of((254U - kBias) << 23);
  }
  LOCKSTEP_HOST_DEVICE void add_finite(uint32_t shifted, uint32_t lane) {
    const float value = value_of(shifted);
    squares[lane] += value * value;
    greatest = shifted > greatest ? shifted : greatest;
  }
  LOCKSTEP_HOST_DEVICE void add(const Piece& piece) {
    if (is_bad(kind, piece)) return add_with_care(piece);
    LOCKSTEP_UNROLL
    for (uint32_t i = 0; i < 16; ++i) {
      constexpr uint32_t kMagnitude = 0x7fU << kShift;
      const uint32_t word = piece.words[i / 4], from = 8 * (i % 4);
      add_finite((from < kShift ? word << (kShift - from) : word >> (from - kShift)) & kMagnitude, i / 4);
    }
  }
  LOCKSTEP_HOST_DEVICE void add_with_care(const Piece& piece) {
    LOCKSTEP_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      for (uint32_t from = 0; from < 32; from += 8) {
        const uint32_t byte = (piece.words[i] >> from) & 0xffU, magnitude = byte & 0x7fU;
        if (kFnuz ? byte == 0x80U : magnitude >= kBeyond)
          counts += kind == kernels::Kind::float8_e5m2 && magnitude == kBeyond ? 0x10000U : 1U;
        else
          add_finite(magnitude << kShift, i);
      }
    }
  }
  LOCKSTEP_HOST_DEVICE void finish(FingerprintContext& context) const {
    float* to = context.shared.float_squares[context.stripe()] + context.quad() * 4;
    for (uint32_t i = 0; i < 4; ++i) to[i] = squares[i];
    context.shared.greatest[context.thread] = bits_of(static_cast<double>(value_of(greatest)));
    context.shared.counts[context.thread] = counts;
  }
};

/// Takes squares in float64: 4 lanes of 16 for 32 bits, 2 of 8 for 64 bits.
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

/// Adds squares of 8 and 16 bits as integers, in 2 lanes of 8.
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

/// Reads this thread's part of its stripe. `load` gives the 16 bytes at an offset within the chunk.
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
    read_stripe<Sums, 4>(context, [data](uint32_t offset) { return load_piece(data + offset); });
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

}  // namespace lockstep::cuda
