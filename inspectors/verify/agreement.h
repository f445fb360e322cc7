// Compares whether some numbers are the same on all ranks, by one all_reduce of the program's default group on the
// device that they are on. The host goes on; it reads one byte when somebody asks.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace lockstep::inspect {

class QueuedAgreement {
 public:
  /// Collective over the default group, a call of the program as any other: the log has it, and its time limit holds.
  /// `numbers`: int64 [n], with the same n on every rank, on any device that the group takes. Queues its work on the
  /// current stream, which waits for the other ranks. Throws what dist::all_reduce throws.
  explicit QueuedAgreement(const at::Tensor& numbers);

  /// Returns whether the numbers are the same on all ranks. Waits for the result of this all_reduce alone.
  bool read() const;

 private:
  at::Tensor differ_;  // bool [1] on the host
  std::optional<c10::Event> arrived_;  // set for a device
};

}  // namespace lockstep::inspect
