#include "worker/device.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "protocol/error.h"

namespace lockstep::worker {
namespace {

constexpr const char* kPlugin = "liblockstep_cuda.so";

/// Beside the executable's folder, where a build and an installed tree have libraries.
std::vector<std::string> candidates() {
  std::error_code error;
  const auto bin = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  return {(bin.parent_path() / "lib" / kPlugin).string(), (bin / kPlugin).string()};
}

}  // namespace

Device::Device(const std::string& device) : device_(device) {
  if (device == "cpu") return;
  index_ = std::stoi(device.substr(device.find(':') + 1));
  std::string reason;
  void* library = nullptr;
  for (const auto& path : candidates()) {
    if (!std::filesystem::exists(path)) continue;
    library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library) break;
    const char* text = ::dlerror();
    reason = text ? text : path + " can't be loaded";
  }
  if (!library)
    throw StartError("this rank was given " + device + ", but " +
                     (reason.empty() ? std::string("this build has no support for GPUs (") + kPlugin + " is missing)"
                                     : "the support for GPUs can't be loaded: " + reason) +
                     ". Start without --gpu-ids to use CPU ranks, or run tools/setup --gpu and build again");
  plugin_ = static_cast<const lockstep_device_plugin_v1*>(::dlsym(library, "lockstep_device_plugin"));
  if (!plugin_ || plugin_->abi != kDevicePluginAbi)
    throw StartError(std::string(kPlugin) + " is of another version than this worker: build both from the same tree");
  state_ = static_cast<const lockstep_device_state_v1*>(::dlsym(library, kDeviceStateSymbol));
  if (!state_ || state_->abi != kDeviceStateAbi)
    throw StartError(std::string(kPlugin) + " is of another version than this worker: build both from the same tree");
  if (const char* problem = plugin_->select(index_)) throw StartError(device + " can't be used: " + problem);
  if (char bus_id[32] = {}; state_->bus_id(index_, bus_id, sizeof bus_id)) bus_id_ = bus_id;
  if (const char* name = plugin_->name(index_)) name_ = name;
}

// Nothing of CUDA or of LibTorch's allocator is called here: both have locks that the run thread may hold while it waits
// for the device. How full the device is, the shell asks the driver (shell/processes/gpu_lookup.h).
nlohmann::json Device::status() const {
  nlohmann::json status = {{"device", device_}};
  if (!name_.empty()) status["device_name"] = name_;
  if (!bus_id_.empty()) status["device_bus_id"] = bus_id_;
  return status;
}

}  // namespace lockstep::worker
