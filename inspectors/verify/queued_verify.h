// Runs verify in two halves, for objects on a device: the fingerprints are queued between two steps, and the ranks
// compare them a step later, when they are there. So training and verification overlap, and the host does not wait.
#pragma once
#include <functional>
#include <memory>

#include "inspectors/verify/verify.h"

namespace lockstep::inspect {

class QueuedVerify {
 public:
  /// Whether fingerprints of the object are computed on a device. Local; the same on every rank of like devices.
  static bool possible(const Subject& subject, const VerifyOptions& options);

  /// Queues the fingerprints on the current streams: of the values that what is queued so far leaves there. Local.
  /// Throws dist::ArgumentError for tensors without bytes.
  QueuedVerify(Subject subject, const VerifyOptions& options);
  QueuedVerify(QueuedVerify&&) noexcept;
  QueuedVerify& operator=(QueuedVerify&&) noexcept;
  ~QueuedVerify();

  /// Collective, as verify_subject(). Waits for the fingerprints alone. Where ranks differ, `now` is compared with all
  /// details; where it is equal again, the finding names what differed.
  Report finish(const std::function<Subject()>& now);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::inspect
