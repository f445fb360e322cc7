#include "inspectors/device/state.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <array>
#include <atomic>

#include "inspectors/device/functions.h"

namespace lockstep::inspect {
namespace {

std::array<std::atomic<const lockstep_device_state_v1*>, static_cast<size_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)>
    registered_states;

const lockstep_device_state_v1* state_of_plugin() {
  const DeviceFunctions* functions = device_functions(c10::DeviceType::CUDA);
  Dl_info info = {};
  if (!functions || ::dladdr(functions, &info) == 0 || !info.dli_fname) return nullptr;
  // The library that the functions are in, which stays loaded.
  void* library = ::dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!library) return nullptr;
  const auto* state = static_cast<const lockstep_device_state_v1*>(::dlsym(library, kDeviceStateSymbol));
  ::dlclose(library);
  return state && state->abi == kDeviceStateAbi ? state : nullptr;
}

}  // namespace

const lockstep_device_state_v1* device_state(c10::DeviceType device) {
  const lockstep_device_state_v1* state = registered_states.at(static_cast<size_t>(device));
  if (state || device != c10::DeviceType::CUDA) return state;
  static const lockstep_device_state_v1* const plugin = state_of_plugin();
  return plugin;
}

void set_device_state(c10::DeviceType device, const lockstep_device_state_v1* state) {
  TORCH_CHECK(!state || state->abi == kDeviceStateAbi, "the state of ", device,
              " devices is of another version than liblockstep: build both from the same tree");
  registered_states.at(static_cast<size_t>(device)) = state;
}

}  // namespace lockstep::inspect
