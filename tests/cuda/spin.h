// A kernel that keeps a stream from going on until the host lets it: what makes a collective wait on one GPU.
#pragma once
#include <cuda_runtime_api.h>

namespace lockstep::cuda {

/// Queues it on `stream`; it ends when `*flag`, in pinned memory, is not 0.
cudaError_t spin_until(const volatile int* flag, cudaStream_t stream);

}  // namespace lockstep::cuda
