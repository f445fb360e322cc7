#include "inspectors/exchange/side_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "collectives/log/meetings.h"
#include "protocol/dist_error.h"

namespace lockstep::inspect {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

const std::string kComplete = "complete";

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string decide(const dist::Store& store, const std::string& key, const std::string& wanted) {
  const Bytes decided = store->compareSet(key, Bytes{}, bytes_of(wanted));
  return {decided.begin(), decided.end()};
}

}  // namespace

SideChannel::SideChannel(dist::RankContext& context)
    : rank_(context.rank()), loopback_(context.loopback()), context_(context), generation_(-1) {}

std::shared_ptr<SideChannel> SideChannel::of(dist::RankContext& context) {
  std::shared_ptr<void>& attachment = context.attachment();
  if (!attachment) {
    const std::shared_ptr<SideChannel> channel(new SideChannel(context));
    attachment = channel;
    context.set_abort_listener([weak = std::weak_ptr(channel)] {
      if (const auto self = weak.lock()) self->interrupt_waits();
    });
  }
  return std::static_pointer_cast<SideChannel>(attachment);
}

void SideChannel::interrupt_waits() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  if (waiting_ && connection_) connection_->interrupt();
  if (connecting_ && context_.abort_reason()) connecting_->interrupt();
  if (!transferring_) return;
  // A rank that has left the cell is not meant: it may have sent its data, or it has closed its connections.
  const bool lost = !(dead_ & transferring_among_).empty();
  if (lost || context_.abort_reason()) transferring_->interrupt();
}

void SideChannel::connect_to_store() {
  const auto fresh = context_.new_store_connection();
  {
    const std::lock_guard lock(mutex_);
    if (connection_) return;
    connecting_ = fresh;
  }
  // The lock is not held: connecting may take a while, and a thread that interrupts must not wait.
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

void SideChannel::begin_waiting() {
  connect_to_store();
  const std::lock_guard lock(mutex_);
  waiting_ = true;
  interrupted_ = false;
}

bool SideChannel::end_waiting() {
  const std::lock_guard lock(mutex_);
  waiting_ = false;
  if (interrupted_) connection_.reset();  // it may be broken
  return interrupted_;
}

RankSet SideChannel::gone() const {
  const std::lock_guard lock(mutex_);
  return dead_ | context_.left_ranks();
}

dist::Store SideChannel::store() {
  connect_to_store();
  const std::lock_guard lock(mutex_);
  return connection_->store();
}

void SideChannel::throw_aborted(const std::string& reason) const {
  throw dist::Aborted(fmt::format("the inspection was aborted: {}", reason), reason);
}

SideChannel::RankGroup& SideChannel::rank_group(const RankSet& ranks) {
  dist::note_meeting();
  if (dist::is_rejoining())
    throw dist::Error("this rank runs cells again and is not connected to the others yet: it can't be inspected");
  // A regroup may have brought new processes, which have counted no exchanges.
  if (generation_ != context_.generation()) {
    rank_groups_.clear();
    generation_ = context_.generation();
    std::vector<dist::Peer> peers;
    for (const auto& [rank, peer] : context_.peers()) peers.push_back(peer);
    deaths_.reset();  // its thread has ended and reports nobody any more
    {
      const std::lock_guard lock(mutex_);
      dead_ = {};
    }
    deaths_ = std::make_unique<dist::DeathWatch>(std::move(peers), [this](int rank) {
      {
        const std::lock_guard lock(mutex_);
        dead_.insert(rank);
      }
      interrupt_waits();
    });
  }
  return rank_groups_[ranks];
}

namespace {
/// Returns what a recording has of an exchange.
std::string recorded_form(const ExchangeResult& result) {
  json all = {{"missing", result.missing.ranks()}, {"early", result.early}, {"values", json::array()}};
  for (const Bytes& value : result.values) all["values"].push_back(json::binary(value));
  const Bytes form = json::to_cbor(all);
  return {form.begin(), form.end()};
}

ExchangeResult read_recorded(const std::string& form) {
  const json all = json::from_cbor(form, /*strict=*/true, /*allow_exceptions=*/false);
  try {
    ExchangeResult result;
    result.missing = RankSet(all.at("missing").get<std::vector<int>>());
    result.early = all.at("early");
    for (const json& value : all.at("values")) result.values.push_back(value.get_binary());
    return result;
  } catch (const json::exception& error) {
    throw dist::Error(fmt::format("the recording of what an inspector got can't be read: {}", error.what()));
  }
}
}  // namespace

ExchangeResult SideChannel::try_gather(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline,
                                       bool waits_when_late) {
  const std::string group = "inspectors " + ranks.str();
  if (const auto& player = context_.player()) return read_recorded(player->exchange(group));
  const auto& recorder = context_.recorder();
  if (!recorder) return gather_now(ranks, value, deadline, waits_when_late);
  const auto begun = recorder->begin_exchange(group);
  try {
    ExchangeResult result = gather_now(ranks, value, deadline, waits_when_late);
    recorder->end_exchange(begun, recorded_form(result));
    return result;
  } catch (const std::exception& error) {  // thrown on
    recorder->fail_call(begun, error.what());
    throw;
  }
}

ExchangeResult SideChannel::gather_now(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline,
                                       bool waits_when_late) {
  RankGroup& mine = rank_group(ranks);
  const auto until = Clock::now() + deadline;
  while (true) {
    const std::string prefix = fmt::format("inspect/{}/{}/{}/", generation_, ranks.str(), mine.exchanges);
    const auto key_of = [&](int rank) { return fmt::format("{}{}", prefix, rank); };
    const std::string decision = prefix + "decision";
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
          // A rank that is gone may have set its value before.
          std::vector<std::string> awaited;
          const RankSet gone_ranks = gone();
          for (const int rank : ranks) {
            if (gone_ranks.contains(rank) && !store()->check({key_of(rank)}))
              missing.insert(rank);
            else
              awaited.push_back(key_of(rank));
          }
          const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
          store()->wait(awaited, std::max(left, std::chrono::milliseconds(1)));
          complete = true;
        } catch (const std::exception&) {  // the causes are distinguished below
        }
      }
      const bool interrupted = end_waiting();
      if (reason) {
        // The ranks that wait for this one then continue without it.
        try {
          decide(store(), decision, RankSet{rank_}.str());
        } catch (const std::exception&) {  // without a store the others wait for their deadline
        }
        ++mine.exchanges;
        throw_aborted(*reason);
      }
      if (complete) break;
      if (interrupted) continue;
      early = false;
      missing = {};
      for (const int rank : ranks)
        if (!store()->check({key_of(rank)})) missing.insert(rank);  // throws if the store itself is gone
      break;
    }
    const std::string wanted = missing.empty() ? kComplete : missing.str();
    const std::string decided = decide(store(), decision, wanted);
    ++mine.exchanges;
    if (decided != kComplete) {
      // The others decided without some ranks. This rank may be one of them: it was late.
      const RankSet absent = parse_rank_set(decided, context_.world_size());
      if (absent.contains(rank_) && waits_when_late) continue;
      return {.values = {}, .missing = absent, .early = early};
    }
    ExchangeResult result;
    if (store()->hasExtendedApi())
      result.values = store()->multiGet(keys);
    else
      for (const std::string& key : keys) result.values.push_back(store()->get(key));
    // Every rank takes part in this exchange, so every rank has read the previous one.
    for (const std::string& key : mine.to_delete) store()->deleteKey(key);
    mine.to_delete = {key_of(rank_)};
    if (rank_ == ranks.ranks().front()) mine.to_delete.push_back(decision);
    return result;
  }
}

std::vector<Bytes> SideChannel::gather(const RankSet& ranks, const Bytes& value, std::chrono::milliseconds deadline) {
  ExchangeResult result = try_gather(ranks, value, deadline);
  if (!result.missing.empty())
    throw dist::PeerLeft(fmt::format("{} left during an inspection; the process groups of the program are not affected",
                                     result.missing.words()),
                         result.missing);
  return std::move(result.values);
}

c10d::Backend& SideChannel::group(const RankSet& ranks, std::chrono::milliseconds deadline) {
  // A rank whose group has failed reports it, so that all ranks make a new one.
  Group& mine = rank_group(ranks).group;
  const std::vector<Bytes> ready = gather(ranks, {static_cast<uint8_t>(mine.backend ? 1 : 0)}, deadline);
  const bool is_made = std::all_of(ready.begin(), ready.end(), [](const Bytes& each) { return each.at(0) == 1; });
  if (is_made && mine.backend) return *mine.backend;
  mine = {};
  const auto& list = ranks.ranks();
  const auto group_rank = static_cast<int>(std::find(list.begin(), list.end(), rank_) - list.begin());
  const std::string name = "tensors of inspectors " + ranks.str();
  if (const auto& player = context_.player()) {
    // It may have been made in a step that is left out.
    if (!is_made) gather(ranks, {}, deadline);
    mine.backend = player->transport(name, group_rank, static_cast<int>(list.size()));
    return *mine.backend;
  }
  mine.connector = dist::find_backend("gloo").factory(
      {.name = "inspect", .group_rank = group_rank, .ranks = list, .timeout = deadline, .loopback = loopback_});
  std::vector<std::string> addresses;
  for (const Bytes& address : gather(ranks, bytes_of(mine.connector->announcement()), deadline))
    addresses.emplace_back(address.begin(), address.end());
  const std::string prefix =
      fmt::format("inspect/{}/{}/group-{}", generation_, ranks.str(), rank_group(ranks).exchanges);
  // All ranks have just exchanged their addresses: they connect at once, or one of them is lost.
  deadline = std::min<std::chrono::milliseconds>(deadline, std::chrono::seconds(20));
  mine.backend = mine.connector->connect(c10::make_intrusive<c10d::PrefixStore>(prefix, store()), addresses, deadline);
  if (const auto& recorder = context_.recorder())
    mine.backend = recorder->record(mine.backend, name, "gloo", {rank_}, generation_);
  return *mine.backend;
}

template <typename Call>
void SideChannel::transfer(const RankSet& ranks, std::chrono::milliseconds deadline, Call&& call) {
  try {
    c10d::Backend& backend = group(ranks, deadline);
    {
      const std::lock_guard lock(mutex_);
      transferring_ = rank_group(ranks).group.connector;
      transferring_among_ = ranks;
    }
    interrupt_waits();  // for what happened before transferring_ was set
    call(backend);
    const std::lock_guard lock(mutex_);
    transferring_.reset();
  } catch (...) {  // the cause is thrown; the group can't be used any more
    {
      const std::lock_guard lock(mutex_);
      transferring_.reset();
    }
    rank_group(ranks).group = {};
    if (const auto reason = context_.abort_reason()) throw_aborted(*reason);
    if (const RankSet lost = gone() & ranks; !lost.empty())
      throw dist::PeerLeft(
          fmt::format("{} left during an inspection; the process groups of the program are not affected", lost.words()),
          lost);
    throw;
  }
}

void SideChannel::broadcast(const RankSet& ranks, at::Tensor tensor, int source_rank,
                            std::chrono::milliseconds deadline) {
  const auto& list = ranks.ranks();
  c10d::BroadcastOptions options;
  options.rootRank = std::find(list.begin(), list.end(), source_rank) - list.begin();
  options.timeout = deadline;
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  transfer(ranks, deadline, [&](c10d::Backend& backend) { backend.broadcast(tensors, options)->wait(); });
}

std::vector<at::Tensor> SideChannel::all_gather(const RankSet& ranks, at::Tensor tensor,
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
