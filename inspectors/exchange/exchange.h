// What an inspection needs of the ranks that take part in it: meet, hand values round, move tensors. Over a Channel where
// they are processes, or within one process where saved replicas are compared.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "inspectors/exchange/side_channel.h"

namespace lockstep::inspect {

class Talk {
 public:
  virtual ~Talk() = default;
  virtual int rank() const = 0;
  virtual const RankSet& ranks() const = 0;
  /// The first thing that all do: some may not come.
  virtual Meeting meet(const Bytes& value) = 0;
  virtual std::vector<Bytes> exchange(const Bytes& value) = 0;
  virtual void broadcast(at::Tensor tensor, int source_rank) = 0;
  virtual std::vector<at::Tensor> all_gather(at::Tensor tensor) = 0;

  /// A value as JSON, by place among the ranks.
  std::vector<nlohmann::json> exchange_json(const nlohmann::json& value);
};

class ChannelTalk : public Talk {
 public:
  ChannelTalk(std::shared_ptr<Channel> channel, int rank, RankSet ranks, std::chrono::milliseconds deadline)
      : channel_(std::move(channel)), rank_(rank), ranks_(std::move(ranks)), deadline_(deadline) {}
  int rank() const override { return rank_; }
  const RankSet& ranks() const override { return ranks_; }
  Meeting meet(const Bytes& value) override { return channel_->meet(ranks_, value, deadline_); }
  std::vector<Bytes> exchange(const Bytes& value) override { return channel_->exchange(ranks_, value, limit()); }
  void broadcast(at::Tensor tensor, int source) override {
    channel_->broadcast(ranks_, std::move(tensor), source, limit());
  }
  std::vector<at::Tensor> all_gather(at::Tensor tensor) override {
    return channel_->all_gather(ranks_, std::move(tensor), limit());
  }

 private:
  /// Once all are here, one of them may have more to read or to send than the others.
  std::chrono::milliseconds limit() const {
    return std::max<std::chrono::milliseconds>(deadline_, std::chrono::minutes(2));
  }

  std::shared_ptr<Channel> channel_;
  int rank_;
  RankSet ranks_;
  std::chrono::milliseconds deadline_;
};

/// Threads of one process that stand for ranks.
class LocalRound {
 public:
  explicit LocalRound(RankSet ranks);
  std::unique_ptr<Talk> talk(int rank);
  /// A thread that can't go on: the others' calls throw.
  void give_up();

 private:
  friend class LocalTalk;
  template <typename T>
  std::vector<T> gather(std::vector<T>& slots, size_t place, T value);

  const RankSet ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t arrived_ = 0;
  uint64_t round_ = 0;
  bool given_up_ = false;
  std::vector<Bytes> bytes_, bytes_result_;
  std::vector<at::Tensor> tensors_, tensors_result_;
};

}  // namespace lockstep::inspect
