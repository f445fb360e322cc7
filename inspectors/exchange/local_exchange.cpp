#include "inspectors/exchange/local_exchange.h"

#include <ATen/ATen.h>

#include "inspectors/exchange/participants.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {

class LocalExchange : public Exchange {
 public:
  LocalExchange(std::shared_ptr<LocalRanks> group, int rank)
      : group_(std::move(group)), rank_(rank), rank_index_(rank_index_of(group_->ranks_, rank)) {}
  int rank() const override { return rank_; }
  const RankSet& ranks() const override { return group_->ranks_; }
  ExchangeResult try_gather(const Bytes& value, bool) override { return {.values = gather(value), .missing = {}}; }
  std::vector<Bytes> gather(const Bytes& value) override { return group_->gather(group_->bytes_, rank_index_, value); }
  std::vector<at::Tensor> all_gather(at::Tensor tensor) override {
    return group_->gather(group_->tensors_, rank_index_, std::move(tensor));
  }
  void broadcast(at::Tensor tensor, int source_rank) override {
    const size_t source = rank_index_of(ranks(), source_rank);
    const std::vector<at::Tensor> all = group_->gather(group_->tensors_, rank_index_, tensor);
    if (source != rank_index_) tensor.copy_(all[source]);
    gather({});  // the source does not change its tensor until all have read it
  }

 private:
  const std::shared_ptr<LocalRanks> group_;
  const int rank_;
  const size_t rank_index_;
};

LocalRanks::LocalRanks(RankSet ranks) : ranks_(std::move(ranks)) {
  bytes_.values.resize(ranks_.size());
  tensors_.values.resize(ranks_.size());
}

std::unique_ptr<Exchange> LocalRanks::exchange(int rank) {
  return std::make_unique<LocalExchange>(shared_from_this(), rank);
}

void LocalRanks::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

template <typename T>
std::vector<T> LocalRanks::gather(Slots<T>& slots, size_t rank_index, T value) {
  std::unique_lock lock(mutex_);
  slots.values[rank_index] = std::move(value);
  const uint64_t mine = exchanges_;
  if (++arrived_ == ranks_.size()) {
    // A thread is in one call at a time, and a result is written when all threads have come. So no thread can begin the
    // next exchange before this result is read.
    slots.result = slots.values;
    arrived_ = 0;
    ++exchanges_;
    changed_.notify_all();
  } else {
    changed_.wait(lock, [&] { return exchanges_ != mine || given_up_; });
    if (exchanges_ == mine) throw dist::Error("the comparison ended early: another replica could not be read");
  }
  return slots.result;
}

}  // namespace lockstep::inspect
