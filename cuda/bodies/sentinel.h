// The kernel that says whether a NaN or Inf is among the elements of many tensors, in one launch: the index of the first
// tensor with one, in a flag that stays on the device. A block of 256 threads reads a chunk of 64 KiB. Tensors of
// integers have no chunks.
#pragma once
#include "cuda/bodies/host_device.h"
#include "cuda/bodies/records.h"

namespace lockstep::cuda {

inline constexpr uint32_t kSentinelThreads = 256;
/// The flag of a list without NaN and Inf.
inline constexpr uint32_t kNoneBad = 0x7fffffffU;

struct SentinelLaunch {
  const TensorRecord* tensors;
  const Strides* strides;
  const uint32_t* tensor_of_chunk;
  uint32_t* first_bad;  // kNoneBad before the launch
};

struct SentinelShared {
  uint32_t bad;
};

struct SentinelContext {
  const SentinelLaunch& launch;
  SentinelShared& shared;
  uint32_t block, thread;
};

/// Whether one of the elements in a word is NaN or Inf. Of each element the exponent's bits are taken and one is added
/// to the lowest: only where all are set does it reach the sign's bit.
LOCKSTEP_HOST_DEVICE bool is_bad(kernels::Kind kind, const Piece& piece) {
  using kernels::Kind;
  uint32_t mask = 0, lowest = 0, reached = 0;
  switch (kind) {
    case Kind::float32:
      mask = 0x7f800000U, lowest = 0x00800000U, reached = 0x80000000U;
      break;
    case Kind::bfloat16:
      mask = 0x7f807f80U, lowest = 0x00800080U, reached = 0x80008000U;
      break;
    case Kind::float16:
      mask = 0x7c007c00U, lowest = 0x04000400U, reached = 0x80008000U;
      break;
    case Kind::float8_e5m2:
      mask = 0x7c7c7c7cU, lowest = 0x04040404U, reached = 0x80808080U;
      break;
    case Kind::float8_e4m3fn:  // it has no Inf, and NaN where all bits are set
      mask = 0x7f7f7f7fU, lowest = 0x01010101U, reached = 0x80808080U;
      break;
    case Kind::float64:
      return ((piece.words[1] & 0x7ff00000U) == 0x7ff00000U) | ((piece.words[3] & 0x7ff00000U) == 0x7ff00000U);
    case Kind::float8_e5m2fnuz:
    case Kind::float8_e4m3fnuz: {  // NaN is the negative zero
      uint32_t found = 0;
      LOCKSTEP_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t word = piece.words[i] ^ 0x80808080U;
        found |= (word - 0x01010101U) & ~word & 0x80808080U;  // not 0 where a byte is 0
      }
      return found != 0;
    }
    default:
      return false;
  }
  uint32_t found = 0;
  LOCKSTEP_UNROLL
  for (uint32_t i = 0; i < 4; ++i) found |= (piece.words[i] & mask) + lowest;
  return (found & reached) != 0;
}

template <kernels::Kind kind>
LOCKSTEP_HOST_DEVICE bool sentinel_finds(const SentinelContext& context, const TensorRecord& tensor) {
  const Reader reader(tensor, context.launch.strides);
  const int64_t begin =
      static_cast<int64_t>(context.block - tensor.first_chunk) * static_cast<int64_t>(kernels::kChunkBytes) +
      context.thread * 16;
  constexpr uint32_t kBatch = 8, kStep = kSentinelThreads * 16, kPieces = kernels::kChunkBytes / kStep;
  bool bad = false;
  if (reader.in_pieces()) {
    for (uint32_t first = 0; first < kPieces; first += kBatch) {
      Piece pieces[kBatch];
      LOCKSTEP_UNROLL
      for (uint32_t i = 0; i < kBatch; ++i) {
        const int64_t offset = begin + (first + i) * kStep;
        pieces[i] = offset + 16 <= tensor.bytes ? load_piece(reader.contiguous_at(offset)) : reader.piece(offset);
      }
      LOCKSTEP_UNROLL
      for (uint32_t i = 0; i < kBatch; ++i) bad |= is_bad(kind, pieces[i]);
    }
  } else {
    for (uint32_t i = 0; i < kPieces; ++i)
      if (const int64_t offset = begin + i * kStep; offset < tensor.bytes) bad |= is_bad(kind, reader.piece(offset));
  }
  return bad;
}

LOCKSTEP_HOST_DEVICE void sentinel_read(SentinelContext& context) {
  using kernels::Kind;
  const TensorRecord& tensor = context.launch.tensors[context.launch.tensor_of_chunk[context.block]];
  bool bad = false;
  switch (tensor.kind) {
    case Kind::float32:
      bad = sentinel_finds<Kind::float32>(context, tensor);
      break;
    case Kind::float64:
      bad = sentinel_finds<Kind::float64>(context, tensor);
      break;
    case Kind::bfloat16:
      bad = sentinel_finds<Kind::bfloat16>(context, tensor);
      break;
    case Kind::float16:
      bad = sentinel_finds<Kind::float16>(context, tensor);
      break;
    case Kind::float8_e5m2:
      bad = sentinel_finds<Kind::float8_e5m2>(context, tensor);
      break;
    case Kind::float8_e4m3fn:
      bad = sentinel_finds<Kind::float8_e4m3fn>(context, tensor);
      break;
    case Kind::float8_e5m2fnuz:
    case Kind::float8_e4m3fnuz:
      bad = sentinel_finds<Kind::float8_e4m3fnuz>(context, tensor);
      break;
    default:
      break;
  }
  if (bad) atomic_or(&context.shared.bad, 1);
}

inline constexpr uint32_t kSentinelPhases = 3;

template <uint32_t phase>
LOCKSTEP_HOST_DEVICE void sentinel_phase(SentinelContext& context) {
  if constexpr (phase == 0)
    if (context.thread == 0) context.shared.bad = 0;
  if constexpr (phase == 1) sentinel_read(context);
  if constexpr (phase == 2)
    if (context.thread == 0 && context.shared.bad != 0)
      atomic_min(context.launch.first_bad, context.launch.tensor_of_chunk[context.block]);
}

}  // namespace lockstep::cuda
