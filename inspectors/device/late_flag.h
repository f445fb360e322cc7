// Checks for NaN and Inf on a device while the host goes on. The result is one word that the host reads when it has
// arrived.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <optional>

#include "inspectors/device/functions.h"

namespace lockstep::inspect {

class LateFlag {
 public:
  /// Queues one check of `tensors`, floating point ones of one device, on `stream`, and a copy of the result to the
  /// host. What is queued on the current stream afterwards runs after the check, so that the tensors may be overwritten
  /// or freed at once. Local; waits for nothing. Throws what DeviceFunctions::first_bad throws.
  LateFlag(const DeviceFunctions& functions, at::TensorList tensors, c10::Stream stream);

  /// Whether read() would not wait.
  bool arrived() const { return event_.query(); }
  /// Returns the index of the first tensor with a NaN or Inf. Waits until the device is that far.
  std::optional<size_t> read() const;

 private:
  at::Tensor host_;
  c10::Event event_;
};

}  // namespace lockstep::inspect
