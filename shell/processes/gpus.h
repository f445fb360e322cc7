// Finds what the shell knows of GPUs without linking CUDA: which ones the driver shows and the user's environment
// leaves, whether the plug-in for them is there, and whether LibTorch can use them.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::shell {

struct Gpus {
  /// Values of CUDA_VISIBLE_DEVICES for a rank to see GPU 0, 1, … of the session: numbers, or what the user's
  /// CUDA_VISIBLE_DEVICES names ("GPU-…", "MIG-…"). Empty: none is visible.
  std::vector<std::string> visible;
  /// Why sessions can't use GPUs, and how to fix it; empty when they can.
  std::string problem;
  /// Whether sessions are refused even where nobody has asked for GPUs.
  bool refuses = false;

  int count() const { return static_cast<int>(visible.size()); }
};

/// Finds those of this machine, for this user's environment.
Gpus find_gpus();
/// These are find_gpus() in parts.
int visible_gpus();
std::string no_gpu_reason();

/// Returns the entries of CUDA_VISIBLE_DEVICES that CUDA takes: up to the first that is no device ("-1", an empty one),
/// for a driver with `count` GPUs. Null: all.
std::vector<std::string> visible_devices(int count, const char* variable);

/// Returns the plug-in that workers load for GPUs (liblockstep_cuda.so): what LOCKSTEP_PLUGIN names, or the one that is
/// installed: in ../lib or beside the programs, in a wheel in that of protocol::torch_prefix(). Empty where there is none.
std::filesystem::path cuda_plugin();

}  // namespace lockstep::shell
