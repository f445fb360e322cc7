// The device of a rank. A worker needs no CUDA; what does (choosing the GPU, its memory, its name) is in a plug-in
// library that is loaded where a GPU is asked for.
#pragma once
#include <cstdint>
#include <string>

#include "protocol/device_plugin.h"
#include "protocol/device_state.h"
#include "protocol/questions.h"

namespace lockstep::worker {

class Device {
 public:
  /// `device` is "cpu" or "cuda:N". Loads the plug-in where it is needed, and registers its process groups on NCCL
  /// unless `backend` is gloo. Throws StartError that says how to fix it.
  Device(const std::string& device, const std::string& backend);

  const std::string& str() const { return device_; }
  int index() const { return index_; }
  /// Returns what the plug-in knows of the work on the device; null for a CPU.
  const lockstep_device_state_v1* state() const { return state_; }
  /// Fills in what a rank says of its device. From any thread; asks nothing of the device, which may be lost.
  void describe(protocol::question::Status::Answer& status) const;

 private:
  std::string device_;
  int index_ = -1;
  const lockstep_device_plugin_v3* plugin_ = nullptr;
  const lockstep_device_state_v1* state_ = nullptr;
  std::string name_, bus_id_;
};

}  // namespace lockstep::worker
