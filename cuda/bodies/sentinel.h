// The kernel that says whether a NaN or Inf is among the elements of many tensors, in one launch: the index of the first
// tensor with one, in a flag that stays on the device. A block of 256 threads reads a chunk of 64 KiB. Tensors of
// integers have no chunks.
#pragma once
#include "cuda/bodies/bad_values.h"
#include "cuda/bodies/host_device.h"
#include "cuda/bodies/records.h"

namespace lockstep::cuda {

inline constexpr uint32_t kSentinelThreads = 256;
/// The flag has this value for a list without NaN and Inf.
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

template <kernels::Kind kind>
LOCKSTEP_HOST_DEVICE bool sentinel_finds(const SentinelContext& context, const TensorRecord& tensor) {
  const Reader reader(tensor, context.launch.strides);
  constexpr auto kChunk = static_cast<int64_t>(kernels::kChunkBytes);
  constexpr uint32_t kBatch = 8, kStep = kSentinelThreads * 16, kPieces = kernels::kChunkBytes / kStep;
  const int64_t chunk = static_cast<int64_t>(context.block - tensor.first_chunk) * kChunk;
  const int64_t begin = chunk + context.thread * 16;
  bool bad = false;
  // A condition for each load would let each wait for the one before.
  if (reader.in_pieces() && chunk + kChunk <= tensor.bytes) {
    const uint8_t* data = reader.contiguous_at(begin);
    for (uint32_t first = 0; first < kPieces; first += kBatch) {
      Piece pieces[kBatch];
      LOCKSTEP_UNROLL
      for (uint32_t i = 0; i < kBatch; ++i) pieces[i] = load_piece(data + (first + i) * kStep);
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
