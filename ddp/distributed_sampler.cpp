#include "ddp/distributed_sampler.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "collectives/dist.h"
#include "protocol/error.h"

namespace lockstep::ddp {

DistributedSampler::DistributedSampler(size_t size, DistributedSamplerOptions options)
    : options_(std::move(options)), size_(size), epoch_(std::make_shared<std::atomic<size_t>>(0)) {
  reset();
}

/// The default group may have fewer ranks than when the sampler was made (%dist_continue).
void DistributedSampler::take_share() {
  const bool grouped = dist::is_initialized();
  num_replicas_ = options_.num_replicas().value_or(grouped ? static_cast<size_t>(dist::get_world_size()) : 1);
  rank_ = options_.rank().value_or(grouped ? static_cast<size_t>(dist::get_rank()) : 0);
  if (rank_ >= num_replicas_) {
    throw ArgumentError("DistributedSampler: rank " + std::to_string(rank_) + " of " + std::to_string(num_replicas_) +
                        " replicas; rank must be less than num_replicas, which is 1 or more");
  }
}

size_t DistributedSampler::size() const {
  return options_.drop_last() ? size_ / num_replicas_ : (size_ + num_replicas_ - 1) / num_replicas_;
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  take_share();
  if (new_size) size_ = *new_size;
  std::vector<int64_t> order(size_);
  if (options_.shuffle()) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(options_.seed() + epoch());
    const auto shuffled = torch::randperm(static_cast<int64_t>(size_), generator, torch::kLong);
    std::copy_n(shuffled.data_ptr<int64_t>(), size_, order.begin());
  } else {
    std::iota(order.begin(), order.end(), 0);
  }
  // After its end the order begins again, as often as needed to give every rank the same number.
  indices_.clear();
  for (size_t i = 0; i < size(); ++i) {
    indices_.push_back(static_cast<size_t>(order[(rank_ + i * num_replicas_) % size_]));
  }
  next_ = 0;
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  if (next_ == indices_.size()) return std::nullopt;
  const auto begin = indices_.begin() + static_cast<std::ptrdiff_t>(next_);
  const size_t count = std::min(batch_size, indices_.size() - next_);
  next_ += count;
  return std::vector<size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("sample_index_", torch::tensor(static_cast<int64_t>(next_), torch::kLong), /*is_buffer=*/true);
  archive.write("epoch_", torch::tensor(static_cast<int64_t>(epoch()), torch::kLong), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  auto epoch = torch::empty({1}, torch::kLong), next = torch::empty({1}, torch::kLong);
  archive.read("epoch_", epoch, /*is_buffer=*/true);
  archive.read("sample_index_", next, /*is_buffer=*/true);
  set_epoch(static_cast<size_t>(epoch.item<int64_t>()));
  reset();
  next_ = std::min(static_cast<size_t>(next.item<int64_t>()), indices_.size());
}

}  // namespace lockstep::ddp
