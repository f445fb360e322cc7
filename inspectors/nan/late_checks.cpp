#include "inspectors/nan/late_checks.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "inspectors/trace/tensor_values.h"

namespace lockstep::inspect {

bool LateChecks::add(const at::Tensor& tensor, WatchedValue value, int64_t serial) {
  if (!tensor.defined() || tensor.device().is_cpu()) return false;
  const at::Tensor values = float_values(tensor);
  if (!values.defined() || values.numel() == 0) return true;
  if (!device_functions(values.device().type())) return false;
  add(values, std::move(value), c10::impl::VirtualGuardImpl(values.device().type()).getStream(values.device()), serial);
  return true;
}

void LateChecks::add(const at::Tensor& values, WatchedValue value, c10::Stream stream, int64_t serial) {
  if (has_next() && (*next_.stream != stream || next_.full())) launch(serial);
  next_.stream = stream;
  // An alias: the accumulation takes the gradient itself over only if nobody else has it.
  next_.tensors.push_back(values.detach());
  next_.values.push_back(std::move(value));
  next_.bytes += values.nbytes();
}

WatchedValue* LateChecks::next_update_of(const at::Tensor& parameter) {
  for (WatchedValue& each : next_.values)
    if (each.role == WatchedValue::Role::parameter && each.parameter.is_same(parameter)) return &each;
  return nullptr;
}

void LateChecks::launch(int64_t serial) {
  if (!has_next()) return;
  Batch batch = std::exchange(next_, {});
  const DeviceFunctions* functions = device_functions(batch.stream->device_type());
  queued_.push_back({.flag = LateFlag(*functions, batch.tensors, *batch.stream),
                     .values = std::move(batch.values),
                     .serial = serial,
                     .steps = {}});
}

void LateChecks::note_steps(const std::function<int64_t(const WatchedValue&)>& step_of) {
  for (Queued& check : queued_) {
    if (!check.steps.empty()) continue;
    for (const WatchedValue& each : check.values) check.steps.push_back(step_of(each));
  }
}

void LateChecks::read(bool all, const std::function<void(const Bad&)>& take) {
  // Not more than the device has of late: the host is rarely so far ahead, and the memory for flags is bounded.
  constexpr size_t kMostUnread = 256;
  while (!queued_.empty() && (all || queued_.size() > kMostUnread || queued_.front().flag.arrived())) {
    const Queued check = std::move(queued_.front());
    queued_.pop_front();
    if (const auto bad = check.flag.read())
      take({.value = check.values.at(*bad), .serial = check.serial, .step = check.steps.at(*bad)});
  }
}

}  // namespace lockstep::inspect
