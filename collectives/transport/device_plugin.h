// Finds the plug-in for GPUs, liblockstep_cuda.so, beside this library or where LOCKSTEP_PLUGIN names it.
#pragma once
#include <string>

#include "protocol/device_plugin.h"

namespace lockstep::dist {

struct DevicePlugin {
  bool exists = false;  // the file
  void* library = nullptr;  // of dlopen
  const lockstep_device_plugin_v3* table = nullptr;  // null: see `problem`
  std::string problem;
};

/// The first call loads it. It is never closed: its kernels are registered with the CUDA runtime. From any thread.
const DevicePlugin& device_plugin();

/// Whether this process has LibTorch's CUDA half, so that it may have tensors on a GPU.
bool libtorch_cuda_is_loaded();

}  // namespace lockstep::dist
