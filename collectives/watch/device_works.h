// Operations of one group on a device's stream: the host has queued them and goes on. They are reported as done, or as
// failed, by the transport's own thread; those that an abort has cut off are kept for the rank to throw.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "collectives/watch/entered.h"

namespace lockstep::dist {

/// How an operation on a device ended: WorkResult of c10d, and `cut` where the group was aborted before its end.
enum class DeviceEnd { pending, done, timeout, error, cut };

struct DeviceOperation {
  std::vector<Entered> entered;  // several where operations were coalesced
  // A work holds its tensors, whose memory the program may want back before the end is reported.
  c10::weak_intrusive_ptr<c10d::Work> work;
  std::atomic<DeviceEnd> end = DeviceEnd::pending;
  std::exception_ptr error;  // the transport's, where it has one; written before `end`

  explicit DeviceOperation(std::vector<Entered> entered, const c10::intrusive_ptr<c10d::Work>& work)
      : entered(std::move(entered)), work(work) {}
  bool failed() const { return end != DeviceEnd::pending && end != DeviceEnd::done; }
};

class DeviceWorks : public std::enable_shared_from_this<DeviceWorks> {
 public:
  /// `ended`: called once for each operation that is done or has failed, and was not cut; from any thread.
  using Ended = std::function<void(const DeviceOperation& operation, DeviceEnd end)>;
  explicit DeviceWorks(Ended ended) : ended_(std::move(ended)) {}

  std::shared_ptr<DeviceOperation> add(std::vector<Entered> entered, const c10::intrusive_ptr<c10d::Work>& work);
  /// Asks the device which operations are done by now, of those whose work is still held. By the rank's own thread: it
  /// may wait for a lock of the driver.
  void refresh();
  /// Whether an operation has neither ended nor been cut off.
  bool pending() const;
  /// The results of what is not known to be done mean nothing from now on. Returns those operations. From any thread.
  std::vector<std::shared_ptr<DeviceOperation>> cut();
  /// Nothing is reported any more.
  void close();
  /// What was cut off or has failed since the last call; the oldest first.
  std::vector<std::shared_ptr<DeviceOperation>> take_failed();

 private:
  void end(const std::shared_ptr<DeviceOperation>& operation, DeviceEnd end);

  mutable std::mutex mutex_;
  std::mutex ended_mutex_;
  Ended ended_;  // under ended_mutex_
  std::vector<std::shared_ptr<DeviceOperation>> pending_, failed_;
};

}  // namespace lockstep::dist
