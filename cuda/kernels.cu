// Makes kernels of the bodies: their phases with a barrier after each. Compiled without fused multiply-add, as the
// CPU's loops are, so that both give the same bits.
#include <utility>

#include "cuda/kernels.h"

namespace lockstep::cuda {
namespace {

template <uint32_t phase>
__device__ __forceinline__ bool run_fingerprint_phase(FingerprintContext& context) {
  fingerprint_phase<phase>(context);
  if constexpr (phase + 1 < kFingerprintPhases) __syncthreads();
  return fingerprint_goes_on(phase, context.shared);
}

template <uint32_t... phases>
__device__ __forceinline__ void run_fingerprint(FingerprintContext& context,
                                                std::integer_sequence<uint32_t, phases...>) {
  (run_fingerprint_phase<phases>(context) && ...);
}

// A multiprocessor runs 4 blocks: 1,024 threads with 4 loads of 16 bytes each on their way. 3 blocks with 8 loads, and 5
// with 4, are slower (docs/performance.md).
__global__ void __launch_bounds__(kFingerprintThreads, 4)
    fingerprint_kernel(const __grid_constant__ FingerprintLaunch launch) {
  __shared__ FingerprintShared shared;
  FingerprintContext context{launch, shared, blockIdx.x, threadIdx.x};
  run_fingerprint(context, std::make_integer_sequence<uint32_t, kFingerprintPhases>());
}

template <uint32_t... phases>
__device__ __forceinline__ void run_sentinel(SentinelContext& context, std::integer_sequence<uint32_t, phases...>) {
  ((sentinel_phase<phases>(context), __syncthreads()), ...);
}

__global__ void __launch_bounds__(kSentinelThreads) sentinel_kernel(const __grid_constant__ SentinelLaunch launch) {
  __shared__ SentinelShared shared;
  SentinelContext context{launch, shared, blockIdx.x, threadIdx.x};
  run_sentinel(context, std::make_integer_sequence<uint32_t, kSentinelPhases>());
}

}  // namespace

cudaError_t load_kernels() {
  cudaFuncAttributes attributes;
  const cudaError_t result = cudaFuncGetAttributes(&attributes, fingerprint_kernel);
  return result != cudaSuccess ? result : cudaFuncGetAttributes(&attributes, sentinel_kernel);
}

cudaError_t launch_fingerprint(const FingerprintLaunch& launch, uint32_t blocks, cudaStream_t stream) {
  fingerprint_kernel<<<blocks, kFingerprintThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

cudaError_t launch_sentinel(const SentinelLaunch& launch, uint32_t blocks, cudaStream_t stream) {
  sentinel_kernel<<<blocks, kSentinelThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
