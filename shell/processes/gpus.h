// What the shell knows of GPUs without linking CUDA: how many the driver shows, and whether the plug-in for them is
// there.
#pragma once
#include <string>

namespace lockstep::shell {

/// GPUs that the NVIDIA driver of this machine shows (/proc/driver/nvidia/gpus).
int visible_gpus();

/// Whether the plug-in (liblockstep_cuda.so, beside the programs or in ../lib) that workers load for GPUs is installed.
bool has_cuda_plugin();

/// Why this session can't use GPUs and how to fix it; empty when it can.
std::string no_gpu_reason();

}  // namespace lockstep::shell
