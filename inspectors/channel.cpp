#include "inspectors/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace lockstep::inspect {
namespace {

using Clock = std::chrono::steady_clock;

const std::string kComplete = "complete";

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string decide(const dist::Store& store, const std::string& key, const std::string& wanted) {
  const Bytes decided = store->compareSet(key, Bytes{}, bytes_of(wanted));
  return {decided.begin(), decided.end()};
}

}  // namespace

Channel::Channel(dist::RankContext& context)
    : rank_(context.rank()),
      loopback_(context.loopback()),
      context_(context),
      store_(context.store()->clone()),
      generation_(context.generation()) {}

std::shared_ptr<Channel> Channel::of(dist::RankContext& context) {
  std::shared_ptr<void>& companion = context.companion();
  if (!companion) companion = std::shared_ptr<Channel>(new Channel(context));
  return std::static_pointer_cast<Channel>(companion);
}

Channel::Circle& Channel::circle(const RankSet& ranks) {
  // A regroup may have brought new processes, which have counted no meetings.
  if (generation_ != context_.generation()) {
    circles_.clear();
    generation_ = context_.generation();
  }
  return circles_[ranks];
}

Meeting Channel::meet(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline) {
  Circle& mine = circle(ranks);
  const auto until = Clock::now() + deadline;
  while (true) {
    const std::string place = fmt::format("inspect/{}/{}/{}/", generation_, ranks.str(), mine.meetings);
    const auto key_of = [&](int rank) { return fmt::format("{}{}", place, rank); };
    const std::string decision = place + "decision";
    std::vector<std::string> keys;
    for (const int rank : ranks) keys.push_back(key_of(rank));
    store_->set(key_of(rank_), value);
    std::string wanted = kComplete;
    try {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
      store_->wait(keys, std::max(left, std::chrono::milliseconds(1)));
    } catch (const std::exception&) {
      RankSet missing;
      for (const int rank : ranks)
        if (!store_->check({key_of(rank)})) missing.insert(rank);  // throws where the store itself is gone
      if (!missing.empty()) wanted = missing.str();
    }
    const std::string decided = decide(store_, decision, wanted);
    ++mine.meetings;
    if (decided != kComplete) {
      // Over without some ranks. This one may be one of them: it has come late, and goes on to the next meeting.
      const RankSet missing = parse_rank_set(decided, context_.world_size());
      if (missing.contains(rank_)) continue;
      return {.values = {}, .missing = missing};
    }
    Meeting meeting;
    if (store_->hasExtendedApi())
      meeting.values = store_->multiGet(keys);
    else
      for (const std::string& key : keys) meeting.values.push_back(store_->get(key));
    // Everyone has come to this meeting, so everyone has read the last one.
    for (const std::string& key : mine.to_delete) store_->deleteKey(key);
    mine.to_delete = {key_of(rank_)};
    if (rank_ == ranks.ranks().front()) mine.to_delete.push_back(decision);
    return meeting;
  }
}

std::vector<Bytes> Channel::exchange(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline) {
  Meeting meeting = meet(ranks, value, deadline);
  if (!meeting.missing.empty())
    throw dist::PeerLeft(
        fmt::format("rank{} {} left an inspection that all ranks were in; the groups of the program are "
                    "untouched",
                    meeting.missing.size() == 1 ? "" : "s", meeting.missing.str()),
        meeting.missing);
  return std::move(meeting.values);
}

c10d::Backend& Channel::group(const RankSet& ranks, std::chrono::milliseconds deadline) {
  // Ranks whose group has failed tell the others, so that all make a new one.
  Group& mine = circle(ranks).group;
  const std::vector<Bytes> ready = exchange(ranks, {static_cast<uint8_t>(mine.backend ? 1 : 0)}, deadline);
  if (std::all_of(ready.begin(), ready.end(), [](const Bytes& each) { return each.at(0) == 1; })) return *mine.backend;
  mine = {};
  const auto& list = ranks.ranks();
  const auto place = std::find(list.begin(), list.end(), rank_) - list.begin();
  mine.connector = dist::find_backend("gloo").factory({.name = "inspect",
                                                       .group_rank = static_cast<int>(place),
                                                       .ranks = list,
                                                       .timeout = deadline,
                                                       .loopback = loopback_});
  std::vector<std::string> addresses;
  for (const Bytes& address : exchange(ranks, bytes_of(mine.connector->announcement()), deadline))
    addresses.emplace_back(address.begin(), address.end());
  const std::string prefix = fmt::format("inspect/{}/{}/group-{}", generation_, ranks.str(), circle(ranks).meetings);
  mine.backend = mine.connector->connect(c10::make_intrusive<c10d::PrefixStore>(prefix, store_), addresses, deadline);
  return *mine.backend;
}

template <typename Call>
void Channel::transfer(const RankSet& ranks, std::chrono::milliseconds deadline, Call&& call) {
  try {
    call(group(ranks, deadline));
  } catch (...) {  // thrown on; the group is of no use any more
    circle(ranks).group = {};
    throw;
  }
}

void Channel::broadcast(const RankSet& ranks, at::Tensor tensor, int source_rank, std::chrono::milliseconds deadline) {
  const auto& list = ranks.ranks();
  c10d::BroadcastOptions options;
  options.rootRank = std::find(list.begin(), list.end(), source_rank) - list.begin();
  options.timeout = deadline;
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  transfer(ranks, deadline, [&](c10d::Backend& backend) { backend.broadcast(tensors, options)->wait(); });
}

std::vector<at::Tensor> Channel::all_gather(const RankSet& ranks, at::Tensor tensor,
                                            std::chrono::milliseconds deadline) {
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (size_t i = 0; i < ranks.size(); ++i) outputs[0].push_back(at::empty_like(tensor));
  std::vector<at::Tensor> inputs = {std::move(tensor)};
  c10d::AllgatherOptions options;
  options.timeout = deadline;
  transfer(ranks, deadline, [&](c10d::Backend& backend) { backend.allgather(outputs, inputs, options)->wait(); });
  return outputs[0];
}

}  // namespace lockstep::inspect
