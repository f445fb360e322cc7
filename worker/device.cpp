#include "worker/device.h"

#include <dlfcn.h>

#include "collectives/session_group.h"
#include "collectives/transport/device_plugin.h"
#include "protocol/error.h"

namespace lockstep::worker {

Device::Device(const std::string& device, const std::string& backend) : device_(device) {
  if (device == "cpu") return;
  index_ = std::stoi(device.substr(device.find(':') + 1));
  const dist::DevicePlugin& plugin = dist::device_plugin();
  if (!plugin.table)
    throw StartError("this rank was given " + device + ", which takes the plug-in for GPUs, and " + plugin.problem +
                     ". Run tools/setup --gpu and build again, or hide the GPUs to use CPU ranks "
                     "(CUDA_VISIBLE_DEVICES= lockstep)");
  plugin_ = plugin.table;
  state_ = static_cast<const lockstep_device_state_v1*>(::dlsym(plugin.library, kDeviceStateSymbol));
  if (!state_ || state_->abi != kDeviceStateAbi)
    throw StartError("the plug-in for GPUs is of another version than this worker: build both from the same tree");
  if (const char* problem = plugin_->select(index_)) throw StartError(device + " can't be used: " + problem);
  if (char bus_id[32] = {}; state_->bus_id(index_, bus_id, sizeof bus_id)) bus_id_ = bus_id;
  if (const char* name = plugin_->name(index_)) name_ = name;
  if (backend == "gloo") return;
  if (const std::string problem = dist::register_nccl(); !problem.empty())
    throw StartError("process groups on NCCL can't be made: " + problem +
                     ". --backend gloo makes groups that copy tensors to the host");
}

// Nothing of CUDA or of LibTorch's allocator is called here: both have locks that the run thread may hold while it
// waits for the device. How full the device is, the shell asks the driver (shell/processes/gpu_lookup.h).
void Device::describe(protocol::question::Status::Answer& status) const {
  status.device = device_;
  if (!name_.empty()) status.device_name = name_;
  if (!bus_id_.empty()) status.device_bus_id = bus_id_;
}

}  // namespace lockstep::worker
