// What a block of the fingerprint kernel works with: the launch, its shared memory, and where a thread is in it.
#pragma once
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
  // Longer rows would keep a warp's stripes in different banks. They gain up to 3 % where 4 blocks fit on a
  // multiprocessor, and cost one block of 3 where it has 100 KiB.
  alignas(16) uint64_t hash[kStripes][2 * kernels::kHashLanes];
  alignas(16) double squares[kStripes][kernels::kSquareLanes];
  alignas(16) float float_squares[kStripes][2 * kernels::kSquareLanes];
  kernels::Keys keys;
  TensorRecord tensor;  // that of the block's chunk
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

  /// Is there after the first phase.
  LOCKSTEP_HOST_DEVICE const TensorRecord& tensor() const { return shared.tensor; }
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

}  // namespace lockstep::cuda
