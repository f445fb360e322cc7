#include "inspectors/exchange/exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "inspectors/exchange/local_exchange.h"
#include "inspectors/exchange/participants.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

class SideChannelExchange : public Exchange {
 public:
  SideChannelExchange(dist::RankContext& context, RankSet ranks, std::chrono::milliseconds deadline)
      : channel_(SideChannel::of(context)), rank_(context.rank()), ranks_(std::move(ranks)), deadline_(deadline) {}
  int rank() const override { return rank_; }
  const RankSet& ranks() const override { return ranks_; }
  ExchangeResult try_gather(const Bytes& value, bool waits_when_late) override {
    return channel_->try_gather(ranks_, value, deadline_, waits_when_late);
  }
  std::vector<Bytes> gather(const Bytes& value) override { return channel_->gather(ranks_, value, limit()); }
  void broadcast(at::Tensor tensor, int source_rank) override {
    channel_->broadcast(ranks_, std::move(tensor), source_rank, limit());
  }
  std::vector<at::Tensor> all_gather(at::Tensor tensor) override {
    return channel_->all_gather(ranks_, std::move(tensor), limit());
  }

 private:
  /// Is longer than the deadline, since a rank may have more to read or to send than the others.
  std::chrono::milliseconds limit() const {
    return std::max<std::chrono::milliseconds>(deadline_, std::chrono::minutes(2));
  }

  const std::shared_ptr<SideChannel> channel_;
  const int rank_;
  const RankSet ranks_;
  const std::chrono::milliseconds deadline_;
};

}  // namespace

size_t Exchange::rank_index() const { return rank_index_of(ranks(), rank()); }

std::vector<json> Exchange::gather_json(const json& value) {
  std::vector<json> result;
  for (const Bytes& each : gather(json::to_cbor(value))) result.push_back(json::from_cbor(each));
  return result;
}

std::vector<std::vector<int64_t>> Exchange::gather_integers(const std::vector<int64_t>& mine) {
  std::vector<int64_t> counts;
  for (const json& each : gather_json(mine.size())) counts.push_back(each.get<int64_t>());
  const int64_t longest = *std::max_element(counts.begin(), counts.end());
  std::vector<std::vector<int64_t>> result(counts.size());
  if (longest == 0) return result;
  const at::Tensor padded = at::zeros({longest}, at::kLong);
  std::copy(mine.begin(), mine.end(), padded.mutable_data_ptr<int64_t>());
  const std::vector<at::Tensor> all = all_gather(padded);
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t* from = all[i].const_data_ptr<int64_t>();
    result[i].assign(from, from + counts[i]);
  }
  return result;
}

std::vector<std::string> Exchange::gather_text(const std::string& mine) {
  constexpr size_t kWord = sizeof(int64_t);
  std::vector<int64_t> words(1 + (mine.size() + kWord - 1) / kWord);
  words[0] = static_cast<int64_t>(mine.size());
  std::memcpy(words.data() + 1, mine.data(), mine.size());
  std::vector<std::string> result;
  for (const std::vector<int64_t>& each : gather_integers(words))
    result.emplace_back(reinterpret_cast<const char*>(each.data() + 1), static_cast<size_t>(each[0]));
  return result;
}

void Exchange::barrier() { all_gather(at::zeros({1}, at::kLong)); }

std::unique_ptr<Exchange> make_exchange(const RankSet& ranks, std::chrono::milliseconds deadline) {
  if (ranks.size() == 1) return std::make_shared<LocalRanks>(ranks)->exchange(ranks.ranks().front());
  return std::make_unique<SideChannelExchange>(*dist::require_context("inspect"), ranks, deadline);
}

}  // namespace lockstep::inspect
