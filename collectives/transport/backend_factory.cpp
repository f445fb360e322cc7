#include "collectives/transport/backend_factory.h"

#include <fmt/format.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "collectives/transport/gloo_connector.h"
#include "collectives/transport/staged_backend.h"
#include "protocol/dist_error.h"

namespace lockstep::dist {

namespace {
struct Registry {
  std::mutex mutex;
  std::map<std::string, BackendEntry> entries{{"gloo", {c10::DeviceType::CPU, make_gloo_connector}}};
};
Registry& registry() {
  static Registry registry;
  return registry;
}

constexpr std::string_view kStaged = "gloo_";

/// The device of "gloo_cuda", if LibTorch has that here; none for other names.
std::optional<c10::DeviceType> staged_device(const std::string& name) {
  if (!name.starts_with(kStaged)) return std::nullopt;
  try {
    const c10::DeviceType type = c10::Device(name.substr(kStaged.size())).type();
    if (type != c10::DeviceType::CPU && c10::impl::hasDeviceGuardImpl(type)) return type;
  } catch (const c10::Error&) {  // not the name of a device
  }
  return std::nullopt;
}

/// With the lock held.
const BackendEntry* find_or_make(const std::string& name) {
  auto& entries = registry().entries;
  const auto found = entries.find(name);
  if (found != entries.end()) return &found->second;
  const auto device = staged_device(name);
  return device ? &entries.emplace(name, BackendEntry{*device, make_staged_gloo_connector}).first->second : nullptr;
}
}  // namespace

void register_backend(const std::string& name, c10::DeviceType device, BackendFactory factory) {
  std::lock_guard lock(registry().mutex);
  registry().entries[name] = {device, std::move(factory)};
}

bool has_backend(const std::string& name) {
  std::lock_guard lock(registry().mutex);
  return find_or_make(name) != nullptr;
}

bool is_gloo(const std::string& name) { return name == "gloo" || name.starts_with(kStaged); }

const BackendEntry& find_backend(const std::string& name) {
  std::lock_guard lock(registry().mutex);
  if (const BackendEntry* found = find_or_make(name)) return *found;
  if (name == "nccl")
    throw ArgumentError(
        "the backend nccl needs Lockstep's CUDA plug-in, which is not loaded: it needs a visible NVIDIA GPU and a "
        "LibTorch with "
        "CUDA (tools/setup --gpu). Use the backend gloo for CPU tensors");
  std::string known;
  for (const auto& [each, entry] : registry().entries) known += (known.empty() ? "" : ", ") + each;
  throw ArgumentError(fmt::format("there is no backend '{}'; there is: {}", name, known));
}

}  // namespace lockstep::dist
