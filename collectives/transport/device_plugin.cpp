#include "collectives/transport/device_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace lockstep::dist {

namespace {
constexpr const char* kPlugin = "liblockstep_cuda.so";

/// Returns an empty path where there is none.
std::filesystem::path plugin_path() {
  if (const char* named = std::getenv("LOCKSTEP_PLUGIN"); named && *named) return named;
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(&device_plugin), &info) == 0 || !info.dli_fname) return {};
  std::error_code error;
  const auto path = std::filesystem::canonical(info.dli_fname, error).parent_path() / kPlugin;
  return !error && std::filesystem::exists(path, error) ? path : std::filesystem::path();
}

DevicePlugin load() {
  const std::filesystem::path path = plugin_path();
  const auto without = [&](std::string problem) {
    return DevicePlugin{!path.empty(), nullptr, nullptr, std::move(problem)};
  };
  if (path.empty()) return without(fmt::format("this build has none ({} is missing beside the library)", kPlugin));
  // The loading is lazy: what the plug-in needs of libtorch_cuda.so is bound when NCCL is asked for. A LibTorch without
  // CUDA lacks that, and Python's `import torch` keeps it to itself.
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!library) {
    const char* text = ::dlerror();
    return without(fmt::format("it can't be loaded: {}", text ? text : path.c_str()));
  }
  const auto* table = static_cast<const lockstep_device_plugin_v3*>(::dlsym(library, "lockstep_device_plugin"));
  if (!table || table->abi != kDevicePluginAbi)
    return without(
        fmt::format("{} is of another version than this library: build both from the same tree", path.string()));
  if (std::string_view(table->libtorch) != TORCH_VERSION)
    return without(fmt::format("{} was built for LibTorch {}, and this library for {}", path.string(), table->libtorch,
                               TORCH_VERSION));
  return {true, library, table, {}};
}
}  // namespace

const DevicePlugin& device_plugin() {
  static const DevicePlugin plugin = load();
  return plugin;
}

bool libtorch_cuda_is_loaded() {
  void* const library = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library) ::dlclose(library);
  return library != nullptr;
}

}  // namespace lockstep::dist
