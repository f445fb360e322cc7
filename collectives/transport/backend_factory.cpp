#include "collectives/transport/backend_factory.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "collectives/transport/gloo_connector.h"
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
}  // namespace

void register_backend(const std::string& name, c10::DeviceType device, BackendFactory factory) {
  std::lock_guard lock(registry().mutex);
  registry().entries[name] = {device, std::move(factory)};
}

bool has_backend(const std::string& name) {
  std::lock_guard lock(registry().mutex);
  return registry().entries.contains(name);
}

const BackendEntry& find_backend(const std::string& name) {
  std::lock_guard lock(registry().mutex);
  const auto found = registry().entries.find(name);
  if (found != registry().entries.end()) return found->second;
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
