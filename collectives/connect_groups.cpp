// Connects the groups of a context: the ranks meet in the store, learn each other's processes and addresses, and
// connect one group after the other. abort() ends all of it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "collectives/log/process_identity.h"
#include "collectives/rank_context.h"
#include "collectives/rendezvous.h"
#include "collectives/transport/mixed_connector.h"
#include "collectives/transport/transport_text.h"

namespace lockstep::dist {

using log_layout::BreakCause;
using nlohmann::json;

namespace {
void throw_if_aborted_since(AbortFlag& flag, int64_t count) {
  std::lock_guard lock(flag.mutex);
  if (flag.count != count)
    throw Aborted(fmt::format("connecting the process groups was aborted: {}", flag.reason), flag.reason);
}

}  // namespace

/// A connection to the store for one rendezvous of ranks, whose waits abort() ends.
struct RankContext::Rendezvous {
  Rendezvous(RankContext& context, int64_t abort_count, std::chrono::milliseconds timeout)
      : context(context), own(context.new_store_connection()) {
    {
      std::lock_guard lock(context.mutex_);
      context.rendezvous_ = own;
    }
    try {
      throw_if_aborted_since(*context.abort_flag_, abort_count);
      own->connect(timeout);
      own->store()->setTimeout(timeout);
    } catch (const std::exception&) {  // the destructor does not run
      leave();
      throw_if_aborted_since(*context.abort_flag_, abort_count);
      throw;
    }
  }
  ~Rendezvous() { leave(); }
  void leave() {
    std::lock_guard lock(context.mutex_);
    context.rendezvous_.reset();
  }
  const Store& store() const { return own->store(); }

  RankContext& context;
  std::shared_ptr<StoreConnection> own;
};

bool RankContext::ranks_share_network(const std::string& key) {
  const Rendezvous rendezvous(*this, 0, options_.connect_timeout);
  const auto networks = exchange(rendezvous.store(), key + "/network", options_.rank, live_ranks_, network_identity(),
                                 options_.connect_timeout);
  const json& own = networks.at(options_.rank);
  return std::all_of(networks.begin(), networks.end(), [&](const auto& each) { return each.second == own; });
}

c10::intrusive_ptr<c10d::Backend> RankContext::recorded(c10::intrusive_ptr<c10d::Backend> transport,
                                                        const WatchedGroup::Identity& group) const {
  if (!recorder_) return transport;
  return recorder_->record(std::move(transport), group.name, group.backend.str(), recorded_ & RankSet(group.ranks),
                           generation_);
}

/// Ranks that have announced nothing here are taken to be as before.
void RankContext::look_who_is_recorded(const std::map<int, json>& announcements) {
  if (!recorder_) return;
  RankSet gone;
  for (const auto& [rank, theirs] : announcements)
    if (!theirs.at("records")) gone.insert(rank);
  gone = gone & recorded_;
  recorded_ = recorded_ - gone;
  if (!gone.empty()) recorder_->stop(fmt::format("{} is a new process, which is not recorded", gone.words()));
}

json RankContext::announcement(const std::vector<GroupEntry>& groups) const {
  json result = {{"world_size", world_size()},
                 {"machine", machine_identity()},
                 {"network", network_identity()},
                 {"pid", getpid()},
                 {"made", monotonic_ns()},
                 {"start", process_start_time(getpid()).value_or(0)},
                 {"log", log_->mapping().shared_path()},
                 {"next_group", next_group_number_},
                 {"records", recorder_ != nullptr},
                 {"groups", json::object()}};
  for (const GroupEntry& entry : groups) {
    const auto& identity = entry.group->identity();
    result["groups"][identity.name] = {{"ranks", identity.ranks},
                                       {"slot", entry.group->slot()},
                                       {"seq", entry.group->seq()},
                                       {"address", entry.group->connector()->announcement()}};
  }
  return result;
}

std::map<int, Peer> RankContext::read_peers(const std::map<int, json>& announcements) {
  const json& own = announcements.at(options_.rank);
  std::map<int, Peer> peers;
  for (const auto& [rank, theirs] : announcements) {
    if (theirs.contains("mismatch")) find({}).group->raise_mismatch(theirs.at("mismatch"));
    if (theirs.at("world_size") != world_size())
      throw Error(fmt::format("rank {} was started with a world size of {}, rank {} with {}", rank,
                              theirs.at("world_size").get<int>(), options_.rank, world_size()));
    next_group_number_ = std::max(next_group_number_, theirs.at("next_group").get<int>());
    Peer peer{.rank = rank,
              .same_machine = theirs.at("machine") == own.at("machine"),
              .pid = theirs.at("pid"),
              .process_start = theirs.at("start")};
    if (loopback_ && theirs.at("network") != own.at("network"))
      throw Error(
          fmt::format("rank {} is on another machine, or in another network namespace of this one, but the groups were "
                      "to connect over the loopback interface. Set MASTER_ADDR to an address that all machines reach",
                      rank));
    if (peer.same_machine && rank != options_.rank)
      peer.log = std::make_shared<const LogMapping>(LogMapping::open(theirs.at("log").get<std::string>()));
    peers[rank] = std::move(peer);
  }
  return peers;
}

void RankContext::connect_group(const GroupEntry& entry, const std::map<int, json>& announcements,
                                const Attempt& attempt, const Store& store) {
  const auto& identity = entry.group->identity();
  std::vector<std::string> addresses;
  std::vector<PeerInGroup> members;
  int64_t seq = 0;
  RankSet without;  // ranks that did not make this group
  for (size_t i = 0; i < identity.ranks.size(); ++i) {
    const int rank = identity.ranks[i];
    const json& groups = announcements.at(rank).at("groups");
    if (!groups.contains(identity.name) || groups.at(identity.name).at("ranks") != identity.ranks) {
      without.insert(rank);
      continue;
    }
    const json& theirs = groups.at(identity.name);
    addresses.push_back(theirs.at("address"));
    seq = std::max(seq, theirs.at("seq").get<int64_t>());
    if (rank != options_.rank)
      members.push_back({peers_.at(rank), static_cast<int>(i), theirs.at("slot").get<uint32_t>()});
  }
  if (!without.empty()) {
    entry.group->set_excluded(true);  // it would need a regroup for ever, and no regroup helps
    return entry.group->break_off(
        BreakCause::excluded,
        fmt::format("group {} could not be connected: {} did not make a group of that name with the same "
                    "ranks. Make a new one with dist::new_group on all ranks",
                    identity.name, without.words()));
  }
  const auto own_keys = c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}", attempt.key, identity.name), store);
  try {
    entry.backend->set_transport(
        recorded(entry.group->connector()->connect(own_keys, addresses, attempt.timeout), identity));
  } catch (const std::exception&) {
    throw_if_aborted_since(*abort_flag_, attempt.abort_count);
    throw Error(
        fmt::format("group {} could not be connected: {}", identity.name, transport_text(std::current_exception())));
  }
  throw_if_aborted_since(*abort_flag_, attempt.abort_count);
  entry.group->connected(std::move(members), seq, attempt.generation,
                         incarnation_of(identity.name, identity.ranks, announcements));
}

void RankContext::connect(const std::vector<GroupEntry>& groups, const Attempt& attempt) {
  if (options_.player) {
    for (const GroupEntry& entry : groups)
      options_.player->connect(*entry.backend, entry.group->identity().name, attempt.generation);
    return;
  }
  for (const GroupEntry& entry : groups) {
    const auto& identity = entry.group->identity();
    entry.group->prepare(make_connector(identity.backend, {.name = identity.name,
                                                           .group_rank = identity.group_rank,
                                                           .ranks = identity.ranks,
                                                           .timeout = identity.timeout,
                                                           .loopback = loopback_,
                                                           .log = entry.group->in_log()}));
  }
  const Rendezvous rendezvous(*this, attempt.abort_count, attempt.timeout);
  std::map<int, json> announcements;
  try {
    announcements =
        exchange(rendezvous.store(), attempt.key, options_.rank, attempt.ranks, announcement(groups), attempt.timeout);
  } catch (const std::exception&) {
    throw_if_aborted_since(*abort_flag_, attempt.abort_count);
    throw Error(fmt::format("the ranks did not come together: {}", transport_text(std::current_exception())));
  }
  peers_ = read_peers(announcements);
  look_who_is_recorded(announcements);
  for (const GroupEntry& entry : groups) connect_group(entry, announcements, attempt, rendezvous.store());
  try {
    throw_if_aborted_since(*abort_flag_, attempt.abort_count);
  } catch (const Aborted& aborted) {  // abort() may have broken a group off just before connected() declared it live
    for (const GroupEntry& entry : groups) entry.group->break_off(BreakCause::aborted, aborted.what());
    throw;
  }
}

}  // namespace lockstep::dist
