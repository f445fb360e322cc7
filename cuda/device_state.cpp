// Reports the state of a device and of this process's work on it, for the worker and %memory (protocol/device_state.h).
#include "protocol/device_state.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <exception>

#include "cuda/current_device.h"

namespace lockstep::cuda {
namespace {

/// Whether it is an error of a call that a capture forbids. That is no failure of work: some other thread captures.
bool is_of_capture(cudaError_t error) {
  return error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread;
}

int work(int index) {
  cudaStream_t stream = nullptr;
  try {
    if (!c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(index))) return LOCKSTEP_DEVICE_UNUSED;
    stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index)).stream();
  } catch (const std::exception&) {  // a device that is not there, or LibTorch's CUDA half is not loaded
    static_cast<void>(cudaGetLastError());
    return LOCKSTEP_DEVICE_UNUSED;
  }
  const CurrentDevice current(index);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t result = cudaStreamIsCapturing(stream, &capture);
  if (result == cudaSuccess && capture != cudaStreamCaptureStatusNone) return LOCKSTEP_DEVICE_CAPTURING;
  // A lost context fails each question; anything else fails one at most.
  for (int i = 0; i < 2; ++i) {
    if (result == cudaSuccess) result = cudaStreamQuery(stream);
    if (result == cudaSuccess) return LOCKSTEP_DEVICE_USED;
    static_cast<void>(cudaGetLastError());
    if (result == cudaErrorNotReady) return LOCKSTEP_DEVICE_USED;
    if (is_of_capture(result)) return LOCKSTEP_DEVICE_CAPTURING;
    if (i == 0) result = cudaSuccess;
  }
  return LOCKSTEP_DEVICE_FAILED;
}

bool finish(int index, lockstep_device_error* error) {
  const CurrentDevice current(index);
  // Waits for all streams of the context, not only LibTorch's. A failed cudaSetDevice returns the same error.
  const cudaError_t result = current ? cudaDeviceSynchronize() : cudaSetDevice(index);
  if (result == cudaSuccess) return true;
  static_cast<void>(cudaGetLastError());
  if (is_of_capture(result)) return true;
  error->code = static_cast<int>(result);
  std::snprintf(error->name, sizeof error->name, "%s", cudaGetErrorName(result));
  std::snprintf(error->text, sizeof error->text, "%s", cudaGetErrorString(result));
  // What one call or launch did wrong is forgotten now; what has broken the context comes again.
  error->lost = cudaDeviceSynchronize() != cudaSuccess;
  static_cast<void>(cudaGetLastError());
  return false;
}

/// Newer versions of LibTorch may leave the second parameter out.
template <typename Allocator>
auto snapshot_of(Allocator& allocator) {
  if constexpr (requires { allocator.snapshot({0, 0}, false); })
    return allocator.snapshot({0, 0}, false);
  else
    return allocator.snapshot({0, 0});
}

bool allocator(int index, bool snapshot, lockstep_allocator_state* state) {
  auto* const caching = c10::cuda::CUDACachingAllocator::get();
  if (!caching || !caching->initialized()) return false;
  try {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto stats = caching->getDeviceStats(static_cast<c10::DeviceIndex>(index));
    lockstep_allocator_state found = {};
    found.allocated = stats.allocated_bytes[kAll].current;
    found.allocated_peak = stats.allocated_bytes[kAll].peak;
    found.reserved = stats.reserved_bytes[kAll].current;
    found.reserved_peak = stats.reserved_bytes[kAll].peak;
    found.inactive_split = stats.inactive_split_bytes[kAll].current;
    found.segments = stats.segment[kAll].current;
    found.retries = stats.num_alloc_retries;
    found.failures = stats.num_ooms;
    found.releasable = found.largest_free = -1;
    if (snapshot) {
      found.releasable = found.largest_free = 0;
      // The pools of graphs are left out: their memory is free for the graph only.
      for (const auto& segment : snapshot_of(*caching).segments) {
        if (segment.device != index || segment.owner_private_pool_id != c10::MempoolId_t{0, 0}) continue;
        if (segment.active_size == 0) found.releasable += static_cast<int64_t>(segment.total_size);
        for (const auto& block : segment.blocks)
          if (!block.allocated && !block.active)
            found.largest_free = std::max(found.largest_free, static_cast<int64_t>(block.size));
      }
    }
    *state = found;
    return true;
  } catch (
      const std::exception&) {  // a device that the allocator does not know, or another allocator than LibTorch's own
    static_cast<void>(cudaGetLastError());
    return false;
  }
}

bool bus_id(int index, char* text, size_t size) {
  if (cudaDeviceGetPCIBusId(text, static_cast<int>(size), index) == cudaSuccess) return true;
  static_cast<void>(cudaGetLastError());
  return false;
}

}  // namespace
}  // namespace lockstep::cuda

extern "C" {
__attribute__((visibility("default"))) extern const lockstep_device_state_v1 lockstep_device_state;
const lockstep_device_state_v1 lockstep_device_state{.abi = lockstep::kDeviceStateAbi,
                                                     .work = lockstep::cuda::work,
                                                     .finish = lockstep::cuda::finish,
                                                     .allocator = lockstep::cuda::allocator,
                                                     .bus_id = lockstep::cuda::bus_id,
                                                     .memory = lockstep::cuda::memory};

// The kernels have code for these architectures. `lockstep doctor` reads them out of the file, since loading the
// library takes LibTorch.
__attribute__((visibility("default"))) extern const char lockstep_cuda_architectures[];
const char lockstep_cuda_architectures[] = "lockstep-cuda-architectures:" LOCKSTEP_CUDA_ARCHITECTURE_LIST ";";
}
