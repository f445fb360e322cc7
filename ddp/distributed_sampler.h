// A port of Python's torch.utils.data.DistributedSampler, index by index: a ported program reads the same batches.
// LibTorch's own distributed samplers divide and shuffle otherwise (ddp::random_sampler and ddp::sequential_sampler
// make those).
//
//   ddp::DistributedSampler sampler(*dataset.size(), ddp::DistributedSamplerOptions().seed(1));
//   auto loader = torch::data::make_data_loader(std::move(dataset), sampler, 64);
//   for (size_t epoch = 0; epoch < epochs; ++epoch) {
//     sampler.set_epoch(epoch);
//     for (auto& batch : *loader) …
//   }
#pragma once
#include <torch/torch.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep::ddp {

struct DistributedSamplerOptions {
  /// Number of ranks that share the samples. Unset: the size of the default group as the epoch begins, 1 without a
  /// group.
  TORCH_ARG(std::optional<size_t>, num_replicas) = std::nullopt;
  /// This rank among them. Unset: its rank in the default group as the epoch begins, 0 without a group.
  TORCH_ARG(std::optional<size_t>, rank) = std::nullopt;
  /// Whether the order differs in each epoch, equally on all ranks. Otherwise it ascends.
  TORCH_ARG(bool, shuffle) = true;
  /// Epoch e is shuffled with seed + e. It must be the same on every rank.
  TORCH_ARG(uint64_t, seed) = 0;
  /// Where num_replicas does not divide the number of samples: leave out the last ones of the order, instead of reading
  /// its first ones twice.
  TORCH_ARG(bool, drop_last) = false;
};

/// Rank r of W reads number r, r + W, r + 2·W, … of an order that is the same on all ranks. Every rank reads as many
/// samples as the others. Local; no rank communicates. A copy reads by itself, but has the same epoch: a DataLoader
/// keeps a copy, and set_epoch of the sampler that it was made from reaches it when it begins its next epoch.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// `size` is the number of samples. Throws ArgumentError for a rank that is not less than num_replicas.
  explicit DistributedSampler(size_t size, DistributedSamplerOptions options = {});

  /// Takes effect at the next reset(), which a DataLoader calls when it begins an epoch. From any thread.
  void set_epoch(size_t epoch) { *epoch_ = epoch; }
  size_t epoch() const { return *epoch_; }
  /// Returns the number of samples that this rank reads in an epoch, as Python's len().
  size_t size() const;
  const DistributedSamplerOptions& options() const { return options_; }

  /// Goes to the beginning of the epoch. `new_size` is a new number of samples. Throws as the constructor does.
  void reset(std::optional<size_t> new_size = std::nullopt) override;
  /// Returns the next indices, `batch_size` of them or as many as there are left; none at the end of the epoch.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;
  /// Saves which sample comes next, and the epoch.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void take_share();

  DistributedSamplerOptions options_;
  size_t size_, num_replicas_ = 1, rank_ = 0;
  std::shared_ptr<std::atomic<size_t>> epoch_;  // shared by all copies
  std::vector<size_t> indices_;  // of this rank, in this epoch
  size_t next_ = 0;
};

}  // namespace lockstep::ddp
