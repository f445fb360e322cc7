// The collectives of one rank over the memory that its group shares. Data goes through the ranks' slots piece by piece.
// All ranks call the same ones in the same order; what is reduced is reduced in the order of the ranks, so that all of
// them get the same bits, run after run.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "collectives/transport/shared_memory/shared_region.h"

namespace lockstep::dist {

/// Called by one thread at a time. A call that has thrown leaves it unusable. All throw SharedMemoryError (see
/// SharedRegion::wait()), and Error where a peer has called something else.
class SharedExchange {
 public:
  using Deadline = SharedRegion::Deadline;
  /// `round` is the last that all ranks have posted.
  explicit SharedExchange(std::shared_ptr<SharedRegion> region, uint32_t round = 0)
      : region_(std::move(region)), round_(round) {}

  /// The collectives from now on are number `seq` of the group.
  void set_seq(int64_t seq) { seq_ = seq; }

  /// Whether reductions know `type` and `op`: those that Gloo has.
  static bool reduces(at::ScalarType type, c10d::ReduceOp::RedOpType op);

  void barrier(Deadline deadline);
  /// Reduces `data`, which has `count` elements of `type`, in place.
  void all_reduce(void* data, int64_t count, at::ScalarType type, c10d::ReduceOp::RedOpType op, Deadline deadline);
  /// Reduces the n-th of `inputs` of all ranks into `output` of rank n. Each has `count` elements of `type`.
  void reduce_scatter(void* output, std::span<const void* const> inputs, int64_t count, at::ScalarType type,
                      c10d::ReduceOp::RedOpType op, Deadline deadline);
  void broadcast(void* data, size_t bytes, int root, Deadline deadline);
  /// Copies `bytes` of each rank to `outputs`, by rank.
  void all_gather(std::span<void* const> outputs, const void* input, size_t bytes, Deadline deadline);
  /// Does the same on rank `root` only; `outputs` of the others are not read.
  void gather(std::span<void* const> outputs, const void* input, size_t bytes, int root, Deadline deadline);

 private:
  struct Reduction;
  void begin(uint64_t call, Deadline deadline);
  void begin_round();
  void written() { region_->post(SharedRegion::Stage::written, round_); }
  void done(uint32_t round) { region_->post(SharedRegion::Stage::done, round); }
  void wait_for(int rank) const;
  void wait_for_all() const;
  std::byte* own() const { return region_->half(region_->rank(), round_); }
  std::byte* of(int rank) const { return region_->half(rank, round_); }
  void reduce(const Reduction& reduction, std::byte* to, uint32_t round, int64_t first, int64_t count) const;
  void all_reduce_in_parts(std::byte* data, const Reduction& reduction, int64_t count);

  const std::shared_ptr<SharedRegion> region_;
  uint32_t round_;  // begins again after the largest
  uint64_t call_ = 0;  // signature of the one that runs
  int64_t seq_ = 0;  // its number
  int64_t seqs_[2] = {};  // by half: of the one that has used it last
  Deadline deadline_;
};

}  // namespace lockstep::dist
