// Runs whole grids of the kernels' bodies on the CPU: each block phase by phase, all threads of a phase one after the
// other, before shared memory that is full of garbage.
#pragma once
#include <cstdint>

#include "cuda/bodies/fingerprint.h"
#include "cuda/bodies/sentinel.h"

namespace lockstep::cuda {

/// In which order blocks run, and the warps of a block.
enum class GridOrder {
  forward,
  backward,
  shuffled,
  interleaved,  // several blocks at a time, a phase of one, then a phase of another
  parallel,     // blocks on threads of their own
};
inline constexpr GridOrder kGridOrders[] = {GridOrder::forward, GridOrder::backward, GridOrder::shuffled,
                                            GridOrder::interleaved, GridOrder::parallel};

void run_grid(const FingerprintLaunch& launch, uint32_t blocks, GridOrder order, uint32_t seed = 1);
void run_grid(const SentinelLaunch& launch, uint32_t blocks, GridOrder order, uint32_t seed = 1);

}  // namespace lockstep::cuda
