// Changes the device of a thread for a moment.
#pragma once
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <exception>

namespace lockstep::cuda {

/// Makes a device current on this thread during its lifetime, if it is not. A thread that has used none gets GPU 0 by
/// the runtime, and cudaSetDevice(0) would make a context there, of some 0.5 GB: such a thread keeps the device.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) {
    is_ok_ = cudaGetDevice(&before_) == cudaSuccess && (before_ == index || cudaSetDevice(index) == cudaSuccess);
    changed_ = is_ok_ && before_ != index;
    if (!is_ok_) static_cast<void>(cudaGetLastError());
  }
  ~CurrentDevice() {
    if (!changed_) return;
    try {
      if (c10::cuda::MaybeSetDevice(static_cast<c10::DeviceIndex>(before_)) == cudaSuccess) return;
    } catch (const std::exception&) {  // LibTorch's CUDA half, which knows of contexts, is not loaded
      if (cudaSetDevice(before_) == cudaSuccess) return;
    }
    static_cast<void>(cudaGetLastError());
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  explicit operator bool() const { return is_ok_; }

 private:
  int before_ = 0;
  bool is_ok_ = false, changed_ = false;
};

/// Bytes of a device: those in use, by any process, and all. False where the runtime does not know.
inline bool memory(int index, uint64_t* used, uint64_t* total) {
  const CurrentDevice current(index);
  size_t free_bytes = 0, all = 0;
  if (!current || cudaMemGetInfo(&free_bytes, &all) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  *used = all - free_bytes;
  *total = all;
  return true;
}

}  // namespace lockstep::cuda
