#include "collectives/transport/backend_config.h"

#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "collectives/transport/backend_factory.h"
#include "protocol/dist_error.h"
#include "protocol/text.h"

namespace lockstep::dist {

namespace {
/// Whether this process can have tensors on such a device.
bool is_there(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type) && c10::impl::getDeviceGuardImpl(type)->deviceCount() > 0;
}

c10::DeviceType device_type(const std::string& name, const std::string& text) {
  try {
    return c10::Device(name).type();
  } catch (const c10::Error&) {
    throw ArgumentError(
        fmt::format("the backend '{}' names the device '{}', which LibTorch does not have; write a name "
                    "(gloo, nccl), or one for each device: cpu:gloo,cuda:nccl",
                    text, name));
  }
}
}  // namespace

bool BackendConfig::Part::works_as_gloo() const {
  return backend == "gloo" || shares_memory() || backend == staged_gloo(device);
}
bool BackendConfig::Part::shares_memory() const { return backend == kSharedMemory; }

BackendConfig::BackendConfig(std::string text) : text_(std::move(text)) {
  if (text_.find(':') == std::string::npos) {
    parts_.push_back({text_, find_backend(text_).device});
    if (text_ == "gloo")
      for (const c10::DeviceType device : {c10::DeviceType::CUDA, c10::DeviceType::PrivateUse1})
        if (is_there(device)) parts_.push_back({staged_gloo(device), device});
    return;
  }
  std::vector<c10::DeviceType> named;
  for (const std::string& item : protocol::split(text_, ',')) {
    const size_t colon = item.find(':');
    if (colon == std::string::npos)
      throw ArgumentError(
          fmt::format("the backend '{}' names no device for '{}'; write a name (gloo, nccl), or one for "
                      "each device: cpu:gloo,cuda:nccl",
                      text_, item));
    const std::string backend = item.substr(colon + 1);
    const c10::DeviceType device = device_type(item.substr(0, colon), text_);
    if (std::find(named.begin(), named.end(), device) != named.end())
      throw ArgumentError(fmt::format("the backend '{}' names {} twice", text_, c10::DeviceTypeName(device, true)));
    named.push_back(device);
    const c10::DeviceType native = find_backend(backend).device;
    if (backend == "gloo" && device != native) {
      if (is_there(device)) parts_.push_back({staged_gloo(device), device});
      continue;
    }
    if (native != device)
      throw ArgumentError(fmt::format("the backend '{}' gives {} tensors to {}, which takes {} tensors", text_,
                                      c10::DeviceTypeName(device, true), backend, c10::DeviceTypeName(native, true)));
    const auto same = [&](const Part& part) { return part.backend == backend; };
    if (std::none_of(parts_.begin(), parts_.end(), same)) parts_.push_back({backend, native});
  }
  if (parts_.empty())
    throw ArgumentError(
        fmt::format("the backend '{}' names no device that this process has; cpu:gloo takes CPU tensors", text_));
  std::stable_partition(parts_.begin(), parts_.end(),
                        [](const Part& part) { return part.device == c10::DeviceType::CPU; });
}

std::string BackendConfig::by_device() const {
  if (text_.find(':') != std::string::npos) return text_;
  std::string text;
  for (const Part& part : parts_)
    text += (text.empty() ? "" : ",") + c10::DeviceTypeName(part.device, /*lower_case=*/true) + ":" + text_;
  return text;
}

const BackendConfig::Part* BackendConfig::part_for(c10::DeviceType device) const {
  for (const Part& part : parts_)
    if (part.device == device) return &part;
  return nullptr;
}

const BackendConfig::Part* BackendConfig::device_part() const {
  for (const Part& part : parts_)
    if (part.device != c10::DeviceType::CPU) return &part;
  return nullptr;
}

}  // namespace lockstep::dist
