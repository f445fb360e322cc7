#include "worker/device_work.h"

#include <utility>

namespace lockstep::worker {

std::optional<DeviceFailure> DeviceWork::end_cell(int64_t number, bool waits) {
  if (!state_) return std::nullopt;
  const int work = state_->work(index_);
  if (work == LOCKSTEP_DEVICE_UNUSED) return std::nullopt;
  if (work != LOCKSTEP_DEVICE_FAILED && (!waits || work == LOCKSTEP_DEVICE_CAPTURING)) {
    if (unfinished_since_ == 0) unfinished_since_ = number;
    return std::nullopt;
  }
  const int64_t first = unfinished_since_ != 0 ? std::exchange(unfinished_since_, 0) : number;
  lockstep_device_error error = {};
  if (state_->finish(index_, &error)) return std::nullopt;
  DeviceFailure failure{
      .type = error.name, .message = {}, .first_cell = first, .last_cell = number, .lost = error.lost};
  const std::string queued = first == number
                                 ? "cell " + std::to_string(number)
                                 : "one of the cells " + std::to_string(first) + " to " + std::to_string(number);
  failure.message = std::string(error.text) + " on " + device_ + " (" + error.name + ", " + std::to_string(error.code) +
                    "), in work that " + queued + " queued";
  if (error.lost)
    failure.message +=
        "\nThe context of the device is lost, and with it what this rank had there, so the rank ends. The other ranks "
        "keep their state. With CUDA_LAUNCH_BLOCKING=1 in the environment of the session, the error comes at the line "
        "that queues the work";
  return failure;
}

}  // namespace lockstep::worker
