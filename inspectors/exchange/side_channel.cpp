#include "inspectors/exchange/side_channel.h"

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
    : rank_(context.rank()), loopback_(context.loopback()), context_(context), generation_(-1) {}

std::shared_ptr<Channel> Channel::of(dist::RankContext& context) {
  std::shared_ptr<void>& attachment = context.attachment();
  if (!attachment) {
    const std::shared_ptr<Channel> channel(new Channel(context));
    attachment = channel;
    context.set_abort_listener([weak = std::weak_ptr(channel)] {
      if (const auto self = weak.lock()) self->disturb();
    });
  }
  return std::static_pointer_cast<Channel>(attachment);
}

void Channel::disturb() {
  const std::lock_guard lock(mutex_);
  disturbed_ = true;
  if (waiting_ && connection_) connection_->interrupt();
  if (connecting_ && context_.abort_reason()) connecting_->interrupt();
  if (!transferring_) return;
  // Not for a rank that has left the cell: it may have done its part. Where it has not, it has closed its connections.
  const bool lost = !(dead_ & transferring_among_).empty();
  if (lost || context_.abort_reason()) transferring_->interrupt();
}

void Channel::connect_to_store() {
  const auto fresh = context_.new_store_connection();
  {
    const std::lock_guard lock(mutex_);
    if (connection_) return;
    connecting_ = fresh;
  }
  // Without the lock: connecting may take a while, and who disturbs must not wait.
  std::exception_ptr failure;
  try {
    fresh->connect(context_.connect_timeout());
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    connecting_.reset();
    if (!failure) connection_ = fresh;
  }
  if (!failure) return;
  if (const auto reason = context_.abort_reason()) throw_aborted(*reason);
  std::rethrow_exception(failure);
}

void Channel::begin_waiting() {
  connect_to_store();
  const std::lock_guard lock(mutex_);
  waiting_ = true;
  disturbed_ = false;
}

bool Channel::end_waiting() {
  const std::lock_guard lock(mutex_);
  waiting_ = false;
  if (disturbed_) connection_.reset();  // broken, perhaps
  return disturbed_;
}

RankSet Channel::gone() const {
  const std::lock_guard lock(mutex_);
  return dead_ | context_.left_ranks();
}

dist::Store Channel::store() {
  connect_to_store();
  const std::lock_guard lock(mutex_);
  return connection_->store();
}

void Channel::throw_aborted(const std::string& reason) const {
  throw dist::Aborted(fmt::format("the inspection was aborted: {}", reason), reason);
}

Channel::Circle& Channel::circle(const RankSet& ranks) {
  // A regroup may have brought new processes, which have counted no meetings.
  if (generation_ != context_.generation()) {
    circles_.clear();
    generation_ = context_.generation();
    std::vector<dist::Peer> peers;
    for (const auto& [rank, peer] : context_.peers()) peers.push_back(peer);
    deaths_.reset();  // its thread has ended, and tells of nobody any more
    {
      const std::lock_guard lock(mutex_);
      dead_ = {};
    }
    deaths_ = std::make_unique<dist::DeathWatch>(std::move(peers), [this](int rank) {
      {
        const std::lock_guard lock(mutex_);
        dead_.insert(rank);
      }
      disturb();
    });
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
    store()->set(key_of(rank_), value);
    RankSet missing;
    bool early = false;
    while (true) {
      missing = {};
      early = true;
      begin_waiting();
      const auto reason = context_.abort_reason();
      bool complete = false;
      if (!reason) {
        try {
          // Who is gone may have come before.
          std::vector<std::string> awaited;
          const RankSet gone_ones = gone();
          for (const int rank : ranks) {
            if (gone_ones.contains(rank) && !store()->check({key_of(rank)}))
              missing.insert(rank);
            else
              awaited.push_back(key_of(rank));
          }
          const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
          store()->wait(awaited, std::max(left, std::chrono::milliseconds(1)));
          complete = true;
        } catch (const std::exception&) {  // told apart below
        }
      }
      const bool disturbed = end_waiting();
      if (reason) {
        // So that those who wait for this rank go on without it.
        try {
          decide(store(), decision, RankSet{rank_}.str());
        } catch (const std::exception&) {  // without a store they will find out by their deadline
        }
        ++mine.meetings;
        throw_aborted(*reason);
      }
      if (complete) break;
      if (disturbed) continue;
      early = false;
      missing = {};
      for (const int rank : ranks)
        if (!store()->check({key_of(rank)})) missing.insert(rank);  // throws where the store itself is gone
      break;
    }
    const std::string wanted = missing.empty() ? kComplete : missing.str();
    const std::string decided = decide(store(), decision, wanted);
    ++mine.meetings;
    if (decided != kComplete) {
      // Over without some ranks. This one may be one of them: it has come late, and goes on to the next meeting.
      const RankSet absent = parse_rank_set(decided, context_.world_size());
      if (absent.contains(rank_)) continue;
      return {.values = {}, .missing = absent, .early = early};
    }
    Meeting meeting;
    if (store()->hasExtendedApi())
      meeting.values = store()->multiGet(keys);
    else
      for (const std::string& key : keys) meeting.values.push_back(store()->get(key));
    // Everyone has come to this meeting, so everyone has read the last one.
    for (const std::string& key : mine.to_delete) store()->deleteKey(key);
    mine.to_delete = {key_of(rank_)};
    if (rank_ == ranks.ranks().front()) mine.to_delete.push_back(decision);
    return meeting;
  }
}

std::vector<Bytes> Channel::exchange(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline) {
  Meeting meeting = meet(ranks, value, deadline);
  if (!meeting.missing.empty())
    throw dist::PeerLeft(
        fmt::format("{} left an inspection that all ranks were in; the groups of the program are untouched",
                    meeting.missing.words()),
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
  // All are here and have just said where: they connect at once, or one of them is lost.
  deadline = std::min<std::chrono::milliseconds>(deadline, std::chrono::seconds(20));
  mine.backend = mine.connector->connect(c10::make_intrusive<c10d::PrefixStore>(prefix, store()), addresses, deadline);
  return *mine.backend;
}

template <typename Call>
void Channel::transfer(const RankSet& ranks, std::chrono::milliseconds deadline, Call&& call) {
  try {
    c10d::Backend& backend = group(ranks, deadline);
    {
      const std::lock_guard lock(mutex_);
      transferring_ = circle(ranks).group.connector;
      transferring_among_ = ranks;
    }
    disturb();  // for what has happened before anyone could know what to interrupt
    call(backend);
    const std::lock_guard lock(mutex_);
    transferring_.reset();
  } catch (...) {  // becomes what it means; the group is of no use any more
    {
      const std::lock_guard lock(mutex_);
      transferring_.reset();
    }
    circle(ranks).group = {};
    if (const auto reason = context_.abort_reason()) throw_aborted(*reason);
    if (const RankSet lost = gone() & ranks; !lost.empty())
      throw dist::PeerLeft(
          fmt::format("{} left an inspection that all ranks were in; the groups of the program are untouched",
                      lost.words()),
          lost);
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
