// Launches the kernels from host code.
#pragma once
#include <cuda_runtime_api.h>

#include "cuda/bodies/fingerprint.h"
#include "cuda/bodies/sentinel.h"

namespace lockstep::cuda {

/// Queue a grid of `blocks` (at least 1) on `stream` of the current device, and return at once. The result is
/// cudaGetLastError()'s: what is wrong with the launch, or what an earlier kernel has done.
cudaError_t launch_fingerprint(const FingerprintLaunch& launch, uint32_t blocks, cudaStream_t stream);
cudaError_t launch_sentinel(const SentinelLaunch& launch, uint32_t blocks, cudaStream_t stream);

/// Loads both for the current device. Otherwise their first launch does, which may wait for kernels that run.
cudaError_t load_kernels();

}  // namespace lockstep::cuda
