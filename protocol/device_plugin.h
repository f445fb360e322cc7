// The plug-in for GPUs, liblockstep_cuda.so, has these functions under the symbol `lockstep_device_plugin`.
#pragma once
#include <cstdint>

extern "C" {
struct lockstep_device_plugin_v3 {
  uint32_t abi;  // kDevicePluginAbi
  const char* libtorch;  // the version that it was built for: "2.11.0"
  /// Makes GPU `index` the one of this thread and process. Returns nullptr, or what is wrong: the thread's next call
  /// ends the text's life.
  const char* (*select)(int index);
  /// Gives bytes in use and in all on GPU `index`. From any thread.
  bool (*memory)(int index, uint64_t* used, uint64_t* total);
  /// Returns "NVIDIA H100", or nullptr where unknown. From any thread; the text stays.
  const char* (*name)(int index);
  /// Returns process groups on NCCL: a lockstep::dist::BackendFactory (collectives/backend/backend.h), which stays;
  /// nullptr where there are none. `problem` then says why, and stays as well.
  const void* (*nccl)(const char** problem);
  /// Whether LibTorch's current stream of this thread on GPU `index` (-1: the current one) is being captured into a
  /// graph. From any thread.
  bool (*captures)(int index);
  /// Calls `question`, which queries events, on this thread in a mode in which that ends no capture of another thread.
  /// `question` must not throw.
  void (*query)(void (*question)(void* argument), void* argument);
};
}

namespace lockstep {
inline constexpr uint32_t kDevicePluginAbi = 3;
}
