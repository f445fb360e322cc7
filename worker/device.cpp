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
  if (const char* problem = plugin_->select(index_)) throw StartError(device + " can't be used: " + problem);
}

nlohmann::json Device::status() const {
  nlohmann::json status = {{"device", device_}};
  if (!plugin_) return status;
  uint64_t used = 0, total = 0;
  if (plugin_->memory(index_, &used, &total)) {
    status["device_memory_bytes"] = used;
    status["device_memory_total_bytes"] = total;
  }
  if (const char* name = plugin_->name(index_)) status["device_name"] = name;
  return status;
}

}  // namespace lockstep::worker
