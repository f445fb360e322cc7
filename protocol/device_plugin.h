// What a worker asks of the plug-in for GPUs, liblockstep_cuda.so: the symbol `lockstep_device_plugin`.
#pragma once
#include <cstdint>

extern "C" {
struct lockstep_device_plugin_v1 {
  uint32_t abi;  // kDevicePluginAbi
  /// Makes GPU `index` the one of this thread and process. Returns nullptr, or what is wrong: the thread's next call
  /// ends the text's life.
  const char* (*select)(int index);
  /// Bytes in use and in all on GPU `index`; from any thread.
  bool (*memory)(int index, uint64_t* used, uint64_t* total);
  /// "NVIDIA H100"; nullptr where unknown. From any thread; the text stays.
  const char* (*name)(int index);
};
}

namespace lockstep {
inline constexpr uint32_t kDevicePluginAbi = 1;
}
