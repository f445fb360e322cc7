#include "inspectors/device/state.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <array>
#include <atomic>

#include "collectives/transport/device_plugin.h"

namespace lockstep::inspect {
namespace {

std::array<std::atomic<const lockstep_device_state_v1*>, static_cast<size_t>(c10::COMPILE_TIME_MAX_DEVICE_TYPES)>
    registered_states;

const lockstep_device_state_v1* state_of_plugin() {
  const dist::DevicePlugin& plugin = dist::device_plugin();
  if (!plugin.table) return nullptr;
  const auto* state = static_cast<const lockstep_device_state_v1*>(::dlsym(plugin.library, kDeviceStateSymbol));
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
