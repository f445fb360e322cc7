#include "inspectors/device/functions.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <string_view>

#include "collectives/transport/device_plugin.h"

namespace lockstep::inspect {
namespace {

constexpr const char* kPlugin = "liblockstep_cuda.so";

std::array<std::atomic<const DeviceFunctions*>, static_cast<size_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)> registered;

std::atomic<const DeviceFunctions*>& registered_for(c10::DeviceType device) {
  return registered.at(static_cast<size_t>(device));
}

const DeviceFunctions* loaded_plugin() {
  const dist::DevicePlugin& plugin = dist::device_plugin();
  if (!plugin.exists) return nullptr;
  const auto without = [&](const std::string& problem) -> const DeviceFunctions* {
    TORCH_WARN("Lockstep's support for GPUs can't be used, so CUDA tensors are looked at through copies on the CPU: ",
               problem);
    return nullptr;
  };
  if (!plugin.table) return without(plugin.problem);
  const auto functions =
      reinterpret_cast<const DeviceFunctions* (*)()>(::dlsym(plugin.library, "lockstep_device_functions"));
  if (!functions) return without(fmt::format("{} has no lockstep_device_functions", kPlugin));
  if (const std::string problem = version_problem(*functions()); !problem.empty()) return without(problem);
  return functions();
}

}  // namespace

std::string version_problem(const DeviceFunctions& functions) {
  if (functions.abi != kDeviceFunctionsAbi)
    return fmt::format("{} is of another version than liblockstep: build both from the same tree", kPlugin);
  if (std::string_view(functions.libtorch) != TORCH_VERSION)
    return fmt::format("{} was built for LibTorch {}, and liblockstep for {}", kPlugin, functions.libtorch,
                       TORCH_VERSION);
  return {};
}

const DeviceFunctions* device_functions(c10::DeviceType device) {
  const DeviceFunctions* functions = registered_for(device);
  if (functions || device != c10::DeviceType::CUDA) return functions;
  static const DeviceFunctions* const plugin = loaded_plugin();
  return plugin;
}

void set_device_functions(c10::DeviceType device, const DeviceFunctions* functions) {
  if (functions) {
    const std::string problem = version_problem(*functions);
    TORCH_CHECK(problem.empty(), problem);
  }
  registered_for(device) = functions;
}

}  // namespace lockstep::inspect
