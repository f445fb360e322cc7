// The device of a rank. A worker needs no CUDA; what does (choosing the GPU, its memory, its name) is in a plug-in
// library that is loaded where a GPU is asked for.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::worker {

extern "C" {
/// What the plug-in liblockstep_cuda.so exports as `lockstep_device_plugin`.
struct lockstep_device_plugin_v1 {
  uint32_t abi;  // kDevicePluginAbi
  /// Makes GPU `index` the one of this thread and process. Returns nullptr, or what is wrong (static storage).
  const char* (*select)(int index);
  /// Bytes in use and in all on GPU `index`; from any thread.
  bool (*memory)(int index, uint64_t* used, uint64_t* total);
  /// "NVIDIA H100"; nullptr where unknown.
  const char* (*name)(int index);
};
}
inline constexpr uint32_t kDevicePluginAbi = 1;

class Device {
 public:
  /// `device`: "cpu" or "cuda:N". Loads the plug-in where it is needed. Throws StartError that says how to fix it.
  explicit Device(const std::string& device);

  const std::string& str() const { return device_; }
  /// For status: {"device":"cuda:0","device_name":...,"device_memory_bytes":...,
  /// "device_memory_total_bytes":...}. From any thread.
  nlohmann::json status() const;

 private:
  std::string device_;
  int index_ = -1;
  const lockstep_device_plugin_v1* plugin_ = nullptr;
};

}  // namespace lockstep::worker
