// Small functions that a training program with several ranks needs beside the wrapper.
#pragma once
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep::ddp {

/// Whether this rank is the one that logs and saves: rank 0, or a process without a group. Local, so a cell for some
/// ranks may call it.
bool is_main_rank();

/// Returns the micro-steps of each rank for one update of `global_batch` samples (or tokens), when every rank takes
/// `micro_batch` at a time. `ranks` share the work; the default is those of the default group, 1 without a group.
/// Throws ArgumentError if they do not divide it, with the number to change and values that fit. Local.
int64_t accumulation_steps(int64_t global_batch, int64_t micro_batch, std::optional<int64_t> ranks = std::nullopt);

/// Makes LibTorch's DistributedRandomSampler for this rank's share of `size` samples: shuffled in every epoch, the same
/// on all ranks (call set_epoch(epoch) and reset() before each). `allow_duplicates`: shares become equal by reading
/// some samples twice, otherwise by leaving the remainder out. Without a group it is the whole set. Its order is not
/// that of Python's DistributedSampler, which is ddp::DistributedSampler (ddp/distributed_sampler.h).
torch::data::samplers::DistributedRandomSampler random_sampler(size_t size, bool allow_duplicates = true);
/// Makes LibTorch's DistributedSequentialSampler, which reads the samples in order; otherwise as random_sampler().
torch::data::samplers::DistributedSequentialSampler sequential_sampler(size_t size, bool allow_duplicates = true);

namespace detail {

/// Lives while a wrapper is made. is_alone(): this process takes the place of a lost rank and is not connected yet. The
/// other ranks have made their wrappers, so this one exchanges nothing with them; ddp::restore copies their values.
class Construction {
 public:
  Construction();
  ~Construction();
  Construction(const Construction&) = delete;
  Construction& operator=(const Construction&) = delete;
  bool is_alone() const;
};

}  // namespace detail
}  // namespace lockstep::ddp
