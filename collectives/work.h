// The types that collectives take and return beside tensors, as in torch.distributed: Rank and Work.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <chrono>
#include <exception>
#include <ostream>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace lockstep::dist {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

/// A plain int is a rank of the default group, as in torch.distributed. group_src(r), group_dst(r) and group_peer(r)
/// are ranks of the group of the call, as the arguments of these names are in torch.distributed: dist::broadcast(t,
/// dist::group_src(0), group).
class Rank {
 public:
  Rank(int rank) : value_(rank) {}  // NOLINT(google-explicit-constructor): a plain int is a rank
  static Rank of_group(int rank) {
    Rank result(rank);
    result.in_group_ = true;
    return result;
  }

  int value() const { return value_; }
  /// Whether it counts in the group of the call.
  bool in_group() const { return in_group_; }

 private:
  int value_;
  bool in_group_ = false;
};

inline Rank group_src(int rank) { return Rank::of_group(rank); }
inline Rank group_dst(int rank) { return Rank::of_group(rank); }
inline Rank group_peer(int rank) { return Rank::of_group(rank); }

/// A collective in flight, or one that is done. Cheap to copy. Destroying it does not cancel the collective. All
/// functions are local, from any thread; on a default-constructed object they throw ArgumentError.
class Work {
 public:
  Work() = default;
  Work(c10::intrusive_ptr<c10d::Work> work, std::string label) : work_(std::move(work)), label_(std::move(label)) {}

  /// Returns when the result is in the tensors; throws what went wrong. `timeout` zero is the group's. When another
  /// limit passes, it throws TimedOut, and the work goes on.
  bool wait(std::chrono::milliseconds timeout = std::chrono::milliseconds::zero()) const;
  /// Whether wait() would return (or throw) at once.
  bool is_completed() const;
  /// Whether it is done and nothing went wrong.
  bool is_success() const;
  /// Returns what wait() would throw; null while it is not done, and where nothing went wrong.
  std::exception_ptr exception() const;
  /// Returns the tensors that the result is in: one, those of a list one after the other, or none (barrier; gather on
  /// other ranks than dst). Throws Error while it is not done, and then what wait() would throw.
  std::vector<at::Tensor> result() const;
  /// Returns a future that completes when the work is done, with the tensors of result() as its value, or with the
  /// error. Callbacks (then) run on the transport's thread, or at once on this one.
  c10::intrusive_ptr<c10::ivalue::Future> get_future() const;
  /// Returns the rank (of the default group) that a recv without a source got its data from.
  int source_rank() const;
  /// Makes the current stream of a device wait for the result; does nothing with CPU tensors.
  void synchronize() const;
  void block_current_stream() const;

  const c10::intrusive_ptr<c10d::Work>& handle() const { return work_; }
  c10d::Work* operator->() const { return work_.get(); }
  friend std::ostream& operator<<(std::ostream& out, const Work& work);

 private:
  c10d::Work& work(const char* function) const;

  c10::intrusive_ptr<c10d::Work> work_;
  std::string label_;  // "all_reduce"
};

}  // namespace lockstep::dist
