// The phases of the fingerprint kernel after reading: stripes → chunk ("chain", "fold"), chunks → group → tensor.
#pragma once
#include <cmath>

#include "cuda/bodies/fingerprint_launch.h"

namespace lockstep::cuda {

LOCKSTEP_HOST_DEVICE void chain_hashes(FingerprintContext& context, uint32_t lane) {
  const uint32_t stripes = (context.chunk_bytes() + kernels::kStripeBytes - 1) / kernels::kStripeBytes;
  uint64_t hash = 0;
  for (uint32_t stripe = 0; stripe < stripes; ++stripe) {
    hash += context.shared.hash[stripe][lane];
    hash = (hash ^ (hash >> 47)) * kernels::kScramblePrime;
  }
  context.shared.hash_lanes[lane] = hash;
}

/// Adds up stripes that were read with care first, then the others, then the one that the tensor's end cuts off: the
/// order of the CPU's loops.
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

// Each half of a hash, the squares, and the rest are combined by a warp of their own, at the same time.
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
}

/// Writes into shared.last whether all others of `count` have come here. What they had written is seen from now on.
LOCKSTEP_HOST_DEVICE void take_ticket(FingerprintContext& context, uint32_t* tickets, uint32_t count) {
  if (context.thread != 0) return;
  context.shared.last = count == 1 || atomic_add(tickets, 1) == count - 1 ? 1 : 0;
}

/// Combines one part of `count` results, in order, on top of what is in `total`.
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

/// Returns the group of this block's chunk among its tensor's.
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
}

LOCKSTEP_HOST_DEVICE void fingerprint_tensor_ticket(FingerprintContext& context) {
  take_ticket(context, context.launch.tensor_tickets + context.launch.tensor_of_chunk[context.block],
              context.tensor().groups);
}

LOCKSTEP_HOST_DEVICE void fingerprint_tensor(FingerprintContext& context) {
  const uint32_t part = part_of(context);
  if (part >= kParts) return;
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

}  // namespace lockstep::cuda
