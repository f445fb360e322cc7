#include "collectives/transport/backend_factory.h"

#include <fmt/format.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "collectives/transport/device_plugin.h"
#include "collectives/transport/gloo_connector.h"
#include "collectives/transport/nccl_environment.h"
#include "collectives/transport/shared_memory/shared_memory_connector.h"
#include "collectives/transport/staged_backend.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

namespace {
/// Ranks on several machines share no memory.
std::unique_ptr<BackendConnector> make_shared_or_gloo(const GroupDescription& group) {
  auto gloo = make_gloo_connector(group);
  return group.loopback ? make_shared_memory_connector(group, std::move(gloo)) : std::move(gloo);
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, BackendEntry> entries{{"gloo", {c10::DeviceType::CPU, make_gloo_connector}},
                                              {kSharedMemory, {c10::DeviceType::CPU, make_shared_or_gloo}}};
};
Registry& registry() {
  static Registry registry;
  return registry;
}

constexpr std::string_view kStaged = "gloo_";

/// Returns the device of "gloo_cuda", if LibTorch has that here; none for other names.
std::optional<c10::DeviceType> staged_device(const std::string& name) {
  if (!name.starts_with(kStaged)) return std::nullopt;
  try {
    const c10::DeviceType type = c10::Device(name.substr(kStaged.size())).type();
    if (type != c10::DeviceType::CPU && c10::impl::hasDeviceGuardImpl(type)) return type;
  } catch (const c10::Error&) {  // not the name of a device
  }
  return std::nullopt;
}

/// The lock is held.
const BackendEntry* find_or_make(const std::string& name) {
  auto& entries = registry().entries;
  const auto found = entries.find(name);
  if (found != entries.end()) return &found->second;
  const auto device = staged_device(name);
  return device ? &entries.emplace(name, BackendEntry{*device, make_staged_gloo_connector}).first->second : nullptr;
}

/// Does the same where LibTorch's CUDA half is loaded: nothing loads it for a process that may not need it.
std::string find_nccl() {
  return libtorch_cuda_is_loaded() ? register_nccl_of_plugin() : "this process has no LibTorch with CUDA loaded";
}
}  // namespace

std::string register_nccl_of_plugin() {
  static const std::string problem = [] {
    const DevicePlugin& plugin = device_plugin();
    if (!plugin.table) return plugin.problem;
    const char* missing = nullptr;
    const void* factory = plugin.table->nccl(&missing);
    if (!factory) return std::string(missing ? missing : "it was built without NCCL");
    // This runs before the first communicator; which ranks there are is known with the first group.
    register_backend("nccl", c10::DeviceType::CUDA,
                     [make = *static_cast<const BackendFactory*>(factory)](const GroupDescription& group) {
                       set_nccl_environment(group.loopback);
                       return make(group);
                     });
    return std::string();
  }();
  return problem;
}

void register_backend(const std::string& name, c10::DeviceType device, BackendFactory factory) {
  std::lock_guard lock(registry().mutex);
  registry().entries[name] = {device, std::move(factory)};
}

bool has_backend(const std::string& name) {
  {
    std::lock_guard lock(registry().mutex);
    if (find_or_make(name)) return true;
  }
  return name == "nccl" && find_nccl().empty();
}

std::string staged_gloo(c10::DeviceType device) {
  return std::string(kStaged) + c10::DeviceTypeName(device, /*lower_case=*/true);
}

const BackendEntry& find_backend(const std::string& name) {
  const bool has_it = has_backend(name);
  const std::string problem = name == "nccl" && !has_it ? find_nccl() : std::string();
  std::lock_guard lock(registry().mutex);
  if (const BackendEntry* found = find_or_make(name)) return *found;
  if (name == "nccl")
    throw ArgumentError(
        fmt::format("the backend nccl needs Lockstep's plug-in for GPUs, and {}. It takes a visible "
                    "NVIDIA GPU and a LibTorch with CUDA (tools/setup --gpu). The backend gloo takes "
                    "tensors of every device",
                    problem));
  std::string known;
  for (const auto& [each, entry] : registry().entries) known += (known.empty() ? "" : ", ") + each;
  throw ArgumentError(fmt::format("there is no backend '{}'; there is: {}", name, known));
}

}  // namespace lockstep::dist
