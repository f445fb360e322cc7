// Small things that a training program with several ranks needs beside the wrapper.
#pragma once
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace lockstep::ddp {

/// Whether this rank is the one that logs and saves: rank 0, or a process without a group. Local, so a cell for some ranks may ask.
bool is_main_rank();

/// Micro-steps of each rank for one update of `global_batch` samples (or tokens), when every rank takes `micro_batch` at a time.
/// `ranks`: how many share the work; the default group's by default, 1 without a group. Throws std::invalid_argument where they do
/// not divide, naming the number to change and values that fit. Local.
int64_t accumulation_steps(int64_t global_batch, int64_t micro_batch, std::optional<int64_t> ranks = std::nullopt);

/// In other orders than Python's DistributedSampler, which is ddp::DistributedSampler (ddp/distributed_sampler.h):
/// LibTorch's DistributedRandomSampler for this rank's share of `size` samples: shuffled anew in every epoch, the same on all ranks
/// (call set_epoch(epoch) and reset() before each). `allow_duplicates`: shares are made equal by giving some samples twice;
/// otherwise by leaving the remainder out. Without a group it is the whole set.
torch::data::samplers::DistributedRandomSampler random_sampler(size_t size, bool allow_duplicates = true);
/// The same in order.
torch::data::samplers::DistributedSequentialSampler sequential_sampler(size_t size, bool allow_duplicates = true);

}  // namespace lockstep::ddp
