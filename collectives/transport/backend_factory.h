// Finds the registered backends by name (backend/backend.h).
#pragma once
#include <string>

#include "collectives/backend/backend.h"

namespace lockstep::dist {

struct BackendEntry {
  c10::DeviceType device = c10::DeviceType::CPU;
  BackendFactory factory;
};
/// Throws ArgumentError, with the names that are registered, for one that is not. "nccl" is looked for in the plug-in
/// for GPUs, which is loaded in a process that has LibTorch's CUDA half.
const BackendEntry& find_backend(const std::string& name);
bool has_backend(const std::string& name);

/// Registers "nccl" with the plug-in for GPUs. Returns why that can't be done, or an empty text.
std::string register_nccl_of_plugin();

/// The backend of ranks on one machine that share memory, for tensors of the CPU (shared_memory/).
inline constexpr const char* kSharedMemory = "shared_memory";

/// Returns "gloo_cuda": Gloo for tensors of that device, whose values go through host memory (staged_backend.h).
std::string staged_gloo(c10::DeviceType device);

}  // namespace lockstep::dist
