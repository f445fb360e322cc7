#include "inspectors/exchange/exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lockstep::inspect {

std::vector<nlohmann::json> Talk::exchange_json(const nlohmann::json& value) {
  std::vector<nlohmann::json> result;
  for (const Bytes& each : exchange(nlohmann::json::to_cbor(value))) result.push_back(nlohmann::json::from_cbor(each));
  return result;
}

class LocalTalk : public Talk {
 public:
  LocalTalk(LocalRound& round, int rank) : round_(round), rank_(rank) {
    const auto& list = round.ranks_.ranks();
    place_ = static_cast<size_t>(std::find(list.begin(), list.end(), rank) - list.begin());
  }
  int rank() const override { return rank_; }
  const RankSet& ranks() const override { return round_.ranks_; }
  Meeting meet(const Bytes& value) override { return {.values = exchange(value), .missing = {}}; }
  std::vector<Bytes> exchange(const Bytes& value) override { return round_.gather(round_.bytes_, place_, value); }
  std::vector<at::Tensor> all_gather(at::Tensor tensor) override {
    return round_.gather(round_.tensors_, place_, std::move(tensor));
  }
  void broadcast(at::Tensor tensor, int source) override {
    const auto& list = ranks().ranks();
    const auto place = static_cast<size_t>(std::find(list.begin(), list.end(), source) - list.begin());
    const std::vector<at::Tensor> all = round_.gather(round_.tensors_, place_, tensor);
    if (place != place_) tensor.copy_(all[place]);
    exchange({});  // the source keeps its tensor as it is until all have read it
  }

 private:
  LocalRound& round_;
  int rank_;
  size_t place_;
};

LocalRound::LocalRound(RankSet ranks) : ranks_(std::move(ranks)), bytes_(ranks_.size()), tensors_(ranks_.size()) {}

std::unique_ptr<Talk> LocalRound::talk(int rank) { return std::make_unique<LocalTalk>(*this, rank); }

void LocalRound::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

template <typename T>
std::vector<T> LocalRound::gather(std::vector<T>& slots, size_t place, T value) {
  std::unique_lock lock(mutex_);
  std::vector<T>* result = nullptr;
  if constexpr (std::is_same_v<T, Bytes>)
    result = &bytes_result_;
  else
    result = &tensors_result_;
  slots[place] = std::move(value);
  const uint64_t round = round_;
  if (++arrived_ == ranks_.size()) {
    // Nobody can begin the next round before this one's result is read: a thread is in one call at a time, and the next
    // result is put down when all have come again.
    *result = slots;
    arrived_ = 0;
    ++round_;
    changed_.notify_all();
  } else {
    changed_.wait(lock, [&] { return round_ != round || given_up_; });
    if (round_ == round) throw dist::Error("the comparison ended early: another replica could not be read");
  }
  return *result;
}

}  // namespace lockstep::inspect
