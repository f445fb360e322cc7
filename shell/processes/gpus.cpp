#include "shell/processes/gpus.h"

#include <cstdlib>
#include <filesystem>

namespace lockstep::shell {

namespace fs = std::filesystem;

int visible_gpus() {
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator entry("/proc/driver/nvidia/gpus", error), end; !error && entry != end;
       entry.increment(error))
    ++count;
  return count;
}

bool has_cuda_plugin() {
  std::error_code error;
  const char* chosen = std::getenv("LOCKSTEP_BIN");
  const fs::path folder =
      chosen && *chosen ? fs::path(chosen) : fs::read_symlink("/proc/self/exe", error).parent_path();
  return fs::exists(folder / "liblockstep_cuda.so", error) || fs::exists(folder / "../lib/liblockstep_cuda.so", error);
}

// The plug-in has kernels, and no process groups on NCCL yet: ranks on GPUs could not talk to one another.
constexpr bool kPluginHasNccl = false;

std::string no_gpu_reason() {
  if (visible_gpus() == 0)
    return "no GPU is visible on this machine (/proc/driver/nvidia/gpus is absent or empty): install NVIDIA's driver, "
           "or leave --gpu-ids "
           "and --backend nccl out to run on the CPU";
  if (!has_cuda_plugin())
    return "this build has no plug-in for GPUs (liblockstep_cuda.so): leave --gpu-ids and --backend nccl out to run on "
           "the CPU";
  if (!kPluginHasNccl)
    return "the plug-in for GPUs (liblockstep_cuda.so) has kernels for inspectors, and no process groups on NCCL yet: "
           "leave --gpu-ids and --backend nccl out to run on the CPU";
  return {};
}

}  // namespace lockstep::shell
