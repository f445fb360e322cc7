// The plug-in for GPUs, liblockstep_cuda.so, knows a device and this process's work on it under the symbol
// `lockstep_device_state`. Plain C, so that the worker, the library and tests with a stand-in need no header of CUDA.
//
// No function throws. Every `index` is CUDA's in this process. Functions that fail leave what they fill in untouched.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {

/// Says what this process may have on a device.
enum lockstep_device_work {
  LOCKSTEP_DEVICE_UNUSED = 0,  // it has no context there, so nothing was ever queued
  LOCKSTEP_DEVICE_USED = 1,  // there may be work, finished or not
  LOCKSTEP_DEVICE_CAPTURING = 2,  // a stream is being captured into a graph: waiting would break the capture
  LOCKSTEP_DEVICE_FAILED = 3  // the context is lost: finish() returns at once, and says how
};

/// An error of work that was queued earlier.
struct lockstep_device_error {
  int code;  // cudaError_t
  char name[64];  // "cudaErrorAssert"
  char text[256];  // "device-side assert triggered"
  bool lost;  // the context is lost: every later call of this process fails in the same way
};

/// The state of LibTorch's caching allocator on one device, in bytes where nothing else is said.
struct lockstep_allocator_state {
  int64_t allocated, allocated_peak;  // of tensors
  int64_t reserved, reserved_peak;  // taken from the device
  int64_t inactive_split;  // free parts of segments that are in use otherwise, so they can't be given back
  int64_t releasable;  // of segments that are free altogether
  int64_t largest_free;  // the largest tensor for which nothing has to be taken from the device
  int64_t segments;  // number of pieces taken from the device
  int64_t retries;  // number of allocations that succeeded only after free segments had been given back
  int64_t failures;  // number of allocations that failed
};

struct lockstep_device_state_v1 {
  uint32_t abi;  // kDeviceStateAbi
  /// Returns a lockstep_device_work. Waits for nothing.
  int (*work)(int index);
  /// Waits until all work that this process has queued on the device has ended. Returns false where some of it, or of
  /// what was queued since the last such call, has failed; `error` then says how.
  bool (*finish)(int index, struct lockstep_device_error* error);
  /// Returns false where LibTorch has not used the device yet. `snapshot` fills in releasable and largest_free as well,
  /// for which every block is visited; they are -1 otherwise.
  bool (*allocator)(int index, bool snapshot, struct lockstep_allocator_state* state);
  /// Writes "0000:3B:00.0", terminated, into `size` (at least 16) bytes.
  bool (*bus_id)(int index, char* text, size_t size);
  /// Gives the bytes in use by all processes, and in all. Makes a context where there is none.
  bool (*memory)(int index, uint64_t* used, uint64_t* total);
};

}  // extern "C"

namespace lockstep {
inline constexpr uint32_t kDeviceStateAbi = 1;
inline constexpr const char* kDeviceStateSymbol = "lockstep_device_state";
}  // namespace lockstep
