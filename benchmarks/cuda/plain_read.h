// What a reader of a device's memory can reach at most: 16 bytes a thread and load, added up, nothing else.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::benchmark {

/// Queues a read of `bytes` (a multiple of 16) at `data` (aligned to 16) on `stream`. `sink` holds one word.
cudaError_t plain_read(const void* data, int64_t bytes, uint32_t* sink, cudaStream_t stream);

}  // namespace lockstep::benchmark
