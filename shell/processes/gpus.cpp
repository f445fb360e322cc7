#include "shell/processes/gpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "protocol/installation.h"
#include "protocol/text.h"
#include "protocol/whole_number.h"

namespace lockstep::shell {

namespace fs = std::filesystem;

namespace {

/// Returns how many NVIDIA's driver shows.
int gpus_of_driver() {
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator entry("/proc/driver/nvidia/gpus", error), end; !error && entry != end;
       entry.increment(error))
    ++count;
  return count;
}

constexpr const char* kOnCpu = "hide them to run on the CPU (CUDA_VISIBLE_DEVICES= lockstep)";

}  // namespace

std::vector<std::string> visible_devices(int count, const char* variable) {
  std::vector<std::string> visible;
  if (!variable) {
    for (int gpu = 0; gpu < count; ++gpu) visible.push_back(std::to_string(gpu));
    return visible;
  }
  for (std::string& entry : protocol::split(variable, ',')) {
    const auto number = protocol::whole_number<int>(entry);
    if (number ? *number < 0 || *number >= count : !entry.starts_with("GPU-") && !entry.starts_with("MIG-")) break;
    visible.push_back(std::move(entry));
  }
  return visible;
}

fs::path cuda_plugin() {
  std::error_code error;
  std::vector<fs::path> places;
  if (const char* named = std::getenv("LOCKSTEP_PLUGIN"); named && *named) {
    places = {named};
  } else if (protocol::is_wheel()) {
    places = {protocol::torch_prefix() / "lib/liblockstep_cuda.so"};
  } else {
    const char* chosen = std::getenv("LOCKSTEP_BIN");
    const fs::path folder =
        chosen && *chosen ? fs::path(chosen) : fs::read_symlink("/proc/self/exe", error).parent_path();
    places = {folder / "../lib/liblockstep_cuda.so", folder / "liblockstep_cuda.so"};
  }
  const auto found = std::ranges::find_if(places, [&](const fs::path& path) { return fs::exists(path, error); });
  return found == places.end() ? fs::path() : *found;
}

Gpus find_gpus() {
  Gpus gpus;
  const int of_driver = gpus_of_driver();
  const char* const variable = std::getenv("CUDA_VISIBLE_DEVICES");
  gpus.visible = visible_devices(of_driver, variable);
  std::error_code error;
  const protocol::LibTorch libtorch = protocol::find_libtorch();
  if (of_driver == 0) {
    gpus.problem =
        "no GPU is visible on this machine (/proc/driver/nvidia/gpus is absent or empty): install NVIDIA's driver, or "
        "leave --gpu-ids, --share-gpu and --backend nccl out to run on the CPU";
  } else if (gpus.visible.empty()) {
    gpus.problem = std::string("CUDA_VISIBLE_DEVICES is '") + (variable ? variable : "") +
                   "', which hides all of the " + std::to_string(of_driver) +
                   " GPUs: unset it, or leave --gpu-ids, --share-gpu and --backend nccl out to run on the CPU";
  } else if (cuda_plugin().empty()) {
    gpus.problem =
        "this build has no plug-in for GPUs (liblockstep_cuda.so): leave --gpu-ids, --share-gpu and "
        "--backend nccl out to run on the CPU";
  } else if (libtorch.problem.empty() && !fs::exists(libtorch.folder / "lib/libtorch_cuda.so", error)) {
    gpus.problem = "this machine has GPUs, and LibTorch (" + libtorch.folder.string() + ") is for the CPU only: run " +
                   protocol::setup_command() + (protocol::is_installed() ? "" : " --gpu") + ", or " + kOnCpu;
    gpus.refuses = true;
  }
  return gpus;
}

int visible_gpus() { return find_gpus().count(); }

std::string no_gpu_reason() { return find_gpus().problem; }

}  // namespace lockstep::shell
