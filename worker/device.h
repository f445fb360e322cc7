// The device of a rank. A worker needs no CUDA; what does (choosing the GPU, its memory, its name) is in a plug-in
// library that is loaded where a GPU is asked for.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "protocol/device_plugin.h"

namespace lockstep::worker {

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
