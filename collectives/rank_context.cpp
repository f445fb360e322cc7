#include "collectives/rank_context.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "collectives/log/process_identity.h"
#include "collectives/rendezvous.h"
#include "collectives/transport/transport_text.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace lockstep::dist {

using log_layout::BreakCause;
using log_layout::EntryState;
using nlohmann::json;

namespace {

// What new_group gives ranks outside: no collective takes it, and it knows who is in.
class OutsideGroup : public c10d::ProcessGroup {
 public:
  explicit OutsideGroup(int size) : c10d::ProcessGroup(-1, size) {}
};

// After close: whoever still holds the group does not keep connections open.
void let_go(const GroupEntry& entry) {
  if (entry.backend) entry.backend->set_transport({});
  entry.group->prepare({});
}

void throw_if_aborted_since(AbortFlag& flag, int64_t count) {
  std::lock_guard lock(flag.mutex);
  if (flag.count != count)
    throw Aborted(fmt::format("connecting the process groups was aborted: {}", flag.reason), flag.reason);
}

}  // namespace

// The meeting of some ranks in the store, in which abort() frees this rank.
struct RankContext::Connection {
  Connection(RankContext& context, int64_t abort_count, std::chrono::milliseconds timeout)
      : context(context), own(context.new_store_connection()) {
    {
      std::lock_guard lock(context.mutex_);
      context.rendezvous_ = own;
    }
    try {
      throw_if_aborted_since(*context.abort_flag_, abort_count);
      own->connect(timeout);
      own->store()->setTimeout(timeout);
    } catch (const std::exception&) {  // the destructor does not run for what is half made
      leave();
      throw_if_aborted_since(*context.abort_flag_, abort_count);
      throw;
    }
  }
  ~Connection() { leave(); }
  void leave() {
    std::lock_guard lock(context.mutex_);
    context.rendezvous_.reset();
  }
  const Store& store() const { return own->store(); }

  RankContext& context;
  std::shared_ptr<StoreConnection> own;
};

RankContext::RankContext(ContextOptions options)
    : options_(std::move(options)),
      log_(std::make_shared<CollectiveLog>(options_.log_path, options_.rank, options_.world_size)),
      watch_(std::make_shared<HangWatch>(log_->mapping())),
      loopback_(options_.loopback.value_or(true)),
      live_ranks_(RankSet::all(options_.world_size)) {
  const GroupEntry entry = make_entry({.name = "default",
                                       .number = 0,
                                       .ranks = live_ranks_.ranks(),
                                       .group_rank = options_.rank,
                                       .backend = options_.backend,
                                       .timeout = options_.timeout});
  // A rank that is in new_group waits in the store, where closed connections do not free it. It may be in a
  // later one: the one that does not match went well where its members agree.
  entry.group->set_mismatch_hook([this](int64_t seq, const std::set<int64_t>& calls) {
    try {
      for (const int64_t call : calls)  // what this rank said of calls before `seq` may still be read
        if (call >= seq)
          options_.store->set(fmt::format("generation-{}/new-group-{}/rank-{}", generation_, call, options_.rank),
                              json{{"mismatch", seq}}.dump());
    } catch (const std::exception&) {
      // Without the store nobody can be told; whoever waits there has lost it, too.
    }
  });
  groups_.push_back(entry);
  if (options_.generation > 0) {
    generation_ = options_.generation - 1;  // joins ranks that are there already: with their next regroup
    return;
  }
  start(entry);
}

void RankContext::start(const GroupEntry& entry) {
  claim_ = std::make_unique<StartClaim>(options_.store, options_.rank, live_ranks_);
  try {
    if (!options_.loopback) loopback_ = ranks_share_network(claim_->key());
    connect({entry}, claim_->key(), live_ranks_, options_.connect_timeout, 0, 0);
  } catch (...) {  // another try may come
    claim_->withdraw(options_.store);
    throw;
  }
}

bool RankContext::ranks_share_network(const std::string& key) {
  const Connection meeting(*this, 0, options_.connect_timeout);
  const auto networks = exchange(meeting.store(), key + "/network", options_.rank, live_ranks_, network_identity(),
                                 options_.connect_timeout);
  const json& own = networks.at(options_.rank);
  return std::all_of(networks.begin(), networks.end(), [&](const auto& each) { return each.second == own; });
}

std::shared_ptr<StoreConnection> RankContext::new_store_connection() const {
  return std::make_shared<StoreConnection>(options_.store, options_.own_user_only);
}

RankContext::~RankContext() {
  for (const GroupEntry& entry : groups_) {
    entry.group->set_mismatch_hook({});
    entry.group->close();
    let_go(entry);
  }
}

GroupEntry RankContext::make_entry(WatchedGroup::Identity identity) {
  GroupEntry entry;
  const int size = static_cast<int>(identity.ranks.size());
  const int group_rank = identity.group_rank;
  const std::string name = identity.name, backend = identity.backend;
  const c10::DeviceType device = find_backend(backend).device;
  entry.group =
      std::make_shared<WatchedGroup>(std::move(identity), log_, watch_, abort_flag_, options_.check_collectives);
  if (group_rank < 0) {
    entry.handle = c10::make_intrusive<OutsideGroup>(size);
    return entry;
  }
  entry.backend = c10::make_intrusive<WatchedBackend>(entry.group);
  entry.handle = c10::make_intrusive<c10d::ProcessGroup>(
      c10::make_intrusive<c10d::PrefixStore>("group-" + name, options_.store), group_rank, size);
  const auto type = c10d::ProcessGroup::strToBackendType(backend);
  entry.handle->setDefaultBackend(type);
  entry.handle->setBackend(device, type, c10::intrusive_ptr<c10d::Backend>(entry.backend));
  entry.handle->setGroupName(name);
  entry.handle->setGroupDesc(name);
  return entry;
}

std::vector<GroupEntry> RankContext::entries() const {
  std::lock_guard lock(mutex_);
  return groups_;
}

GroupEntry RankContext::find(const Group& handle) const {
  std::lock_guard lock(mutex_);
  if (!handle) return groups_.front();
  for (const GroupEntry& entry : groups_)
    if (entry.handle == handle) return entry;
  throw ArgumentError("this process group was not made by dist::new_group of this rank, or it was destroyed");
}

int64_t RankContext::abort_count() const {
  std::lock_guard lock(abort_flag_->mutex);
  return abort_flag_->count;
}

json RankContext::announcement(const std::vector<GroupEntry>& groups) const {
  json result = {{"world_size", options_.world_size},
                 {"machine", machine_identity()},
                 {"network", network_identity()},
                 {"pid", getpid()},
                 {"start", process_start_time(getpid()).value_or(0)},
                 {"log", log_->mapping().shared_path()},
                 {"next_group", next_group_number_},
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

void RankContext::connect(const std::vector<GroupEntry>& groups, const std::string& key, const RankSet& ranks,
                          std::chrono::milliseconds timeout, int64_t generation, int64_t abort_count) {
  for (const GroupEntry& entry : groups) {
    const auto& identity = entry.group->identity();
    const GroupDescription description{identity.name, identity.group_rank, identity.ranks, identity.timeout, loopback_};
    entry.group->prepare(find_backend(identity.backend).factory(description));
  }
  Connection meeting(*this, abort_count, timeout);
  std::map<int, json> everyone;
  try {
    everyone = exchange(meeting.store(), key, options_.rank, ranks, announcement(groups), timeout);
  } catch (const std::exception&) {
    throw_if_aborted_since(*abort_flag_, abort_count);
    throw Error(fmt::format("the ranks did not come together: {}", transport_text(std::current_exception())));
  }

  std::map<int, Peer> peers;
  const std::string machine = everyone.at(options_.rank).at("machine"),
                    network = everyone.at(options_.rank).at("network");
  for (const auto& [rank, theirs] : everyone) {
    if (theirs.contains("mismatch")) find({}).group->raise_mismatch(theirs.at("mismatch"));
    if (theirs.at("world_size") != options_.world_size)
      throw Error(fmt::format("rank {} was started with a world size of {}, rank {} with {}", rank,
                              theirs.at("world_size").get<int>(), options_.rank, options_.world_size));
    next_group_number_ = std::max(next_group_number_, theirs.at("next_group").get<int>());
    Peer peer{.rank = rank,
              .same_machine = theirs.at("machine") == machine,
              .pid = theirs.at("pid"),
              .process_start = theirs.at("start")};
    if (loopback_ && theirs.at("network") != network)
      throw Error(
          fmt::format("rank {} is on another machine, or in another network namespace of this one, but the groups were "
                      "to connect over the loopback interface. Set MASTER_ADDR to an address that all machines reach",
                      rank));
    if (peer.same_machine && rank != options_.rank)
      peer.log = std::make_shared<const LogMapping>(LogMapping::open(theirs.at("log").get<std::string>()));
    peers[rank] = std::move(peer);
  }
  peers_ = peers;

  for (const GroupEntry& entry : groups) {
    const auto& identity = entry.group->identity();
    std::vector<std::string> addresses;
    std::vector<PeerInGroup> members;
    int64_t seq = 0;
    RankSet strangers;
    for (size_t i = 0; i < identity.ranks.size(); ++i) {
      const int rank = identity.ranks[i];
      const json& lists = everyone.at(rank).at("groups");
      if (!lists.contains(identity.name) || lists.at(identity.name).at("ranks") != identity.ranks) {
        strangers.insert(rank);
        continue;
      }
      const json& theirs = lists.at(identity.name);
      addresses.push_back(theirs.at("address"));
      seq = std::max(seq, theirs.at("seq").get<int64_t>());
      if (rank != options_.rank)
        members.push_back({peers.at(rank), static_cast<int>(i), theirs.at("slot").get<uint32_t>()});
    }
    if (!strangers.empty()) {
      entry.group->break_off(
          BreakCause::excluded,
          fmt::format("group {} could not be connected: {} did not make a group of that name with the same "
                      "ranks. Make a new one with dist::new_group on all ranks",
                      identity.name, strangers.words()));
      continue;
    }
    const auto store =
        c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}", key, identity.name), meeting.store());
    try {
      entry.backend->set_transport(entry.group->connector()->connect(store, addresses, timeout));
    } catch (const std::exception&) {
      throw_if_aborted_since(*abort_flag_, abort_count);
      throw Error(
          fmt::format("group {} could not be connected: {}", identity.name, transport_text(std::current_exception())));
    }
    throw_if_aborted_since(*abort_flag_, abort_count);
    entry.group->connected(std::move(members), seq, generation);
  }
  try {
    throw_if_aborted_since(*abort_flag_, abort_count);
  } catch (const Aborted& aborted) {  // it may have broken a group off just before that was declared connected
    for (const GroupEntry& entry : groups) entry.group->break_off(BreakCause::aborted, aborted.what());
    throw;
  }
}

Group RankContext::new_group(std::vector<int> ranks, std::chrono::milliseconds timeout, const std::string& backend,
                             uint64_t call_site) {
  std::sort(ranks.begin(), ranks.end());
  if (ranks.empty()) ranks = RankSet::all(options_.world_size).ranks();
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= options_.world_size)
      throw ArgumentError(
          fmt::format("dist::new_group: there is no rank {}; ranks are 0 to {}", ranks[i], options_.world_size - 1));
    if (i > 0 && ranks[i] == ranks[i - 1])
      throw ArgumentError(fmt::format("dist::new_group: rank {} is named twice", ranks[i]));
  }
  find_backend(backend.empty() ? options_.backend : backend);  // an unknown name is an error before anyone waits
  const auto me = std::find(ranks.begin(), ranks.end(), options_.rank);

  // All ranks make the call, in the sequence of the default group; those outside only count. Without a default group, because a
  // rank is lost, the members' meeting alone has to do.
  const GroupEntry all = find({});
  const bool whole = live_ranks_.size() == static_cast<size_t>(options_.world_size);
  const RankSet members(ranks);
  if (!whole && !(members - live_ranks_).empty())
    throw ArgumentError(fmt::format("dist::new_group: {} {} lost; the ranks that are left are {}",
                                    (members - live_ranks_).words(), (members - live_ranks_).size() == 1 ? "is" : "are",
                                    live_ranks_.str()));
  const int64_t aborts = abort_count();  // before the log has the call: an abort from there on is meant for it
  Entered entered;
  std::string key;
  if (whole) {
    entered = all.backend->enter_new_group(std::vector<int64_t>(ranks.begin(), ranks.end()), call_site);
    key = fmt::format("generation-{}/new-group-{}", generation_, entered.seq);
  } else {
    key = fmt::format("generation-{}/new-group-without-default-{}", generation_, next_group_number_);
  }
  const int number = next_group_number_++;
  GroupEntry entry;
  try {
    entry = make_entry({.name = fmt::format("group_{}", number),
                        .number = number,
                        .ranks = ranks,
                        .group_rank = me == ranks.end() ? -1 : static_cast<int>(me - ranks.begin()),
                        .backend = backend.empty() ? options_.backend : backend,
                        .timeout = timeout});
    {
      std::lock_guard lock(mutex_);
      groups_.push_back(entry);  // before it is connected: abort() frees what it finds here
    }
    if (whole) all.group->throw_if_mismatched();  // whoever sees one from here on tells those that wait in the store
    if (me != ranks.end()) connect({entry}, key, members, options_.connect_timeout, generation_, aborts);
  } catch (...) {  // for the log
    forget(entry);
    if (whole) all.group->finish(entered, EntryState::failed);
    throw;
  }
  if (whole) all.group->finish(entered, EntryState::done);
  return entry.handle;
}

void RankContext::forget(const GroupEntry& entry) {
  std::lock_guard lock(mutex_);
  std::erase_if(groups_, [&](const GroupEntry& each) { return each.handle == entry.handle; });
}

void RankContext::destroy_group(const Group& handle) {
  const GroupEntry entry = find(handle);
  forget(entry);
  entry.group->close();
  let_go(entry);
}

void RankContext::abort(const std::string& reason) {
  {
    std::lock_guard lock(abort_flag_->mutex);
    abort_flag_->reason = reason;
    abort_flag_->set = true;
    ++abort_flag_->count;
  }
  log_layout::Header& header = log_->mapping().header();
  std::strncpy(header.reason, reason.c_str(), sizeof header.reason - 1);
  header.aborted = 1;
  const std::string message = fmt::format("aborted: {}", reason);
  for (const GroupEntry& entry : entries())
    if (entry.group->member()) entry.group->break_off(BreakCause::aborted, message);
  {
    std::lock_guard lock(mutex_);
    if (rendezvous_) rendezvous_->interrupt();
  }
  disturb();
}

void RankContext::set_disturbance_listener(std::function<void()> listener) {
  std::lock_guard lock(mutex_);
  disturbance_ = std::move(listener);
}

void RankContext::disturb() const {
  std::function<void()> listener;
  {
    std::lock_guard lock(mutex_);
    listener = disturbance_;
  }
  if (listener) listener();
}

std::optional<std::string> RankContext::abort_reason() const {
  std::lock_guard lock(abort_flag_->mutex);
  return abort_flag_->set ? std::optional(abort_flag_->reason) : std::nullopt;
}

void RankContext::rank_left(int64_t cell, int rank) {
  {
    std::lock_guard lock(mutex_);
    departures_[rank] = cell;
  }
  disturb();
}

RankSet RankContext::left_ranks() const {
  const int64_t cell = log_->mapping().header().cell;
  std::lock_guard lock(mutex_);
  RankSet left;
  for (const auto& [rank, of_cell] : departures_)
    if (of_cell == cell && cell > 0) left.insert(rank);
  return left;
}

bool RankContext::needs_regroup() const {
  for (const GroupEntry& entry : entries())
    if (entry.group->member() && !entry.group->live() && !entry.group->excluded()) return true;
  return false;
}

void RankContext::regroup(int64_t generation, const RankSet& ranks, std::chrono::milliseconds timeout) {
  if (generation <= generation_)
    throw ArgumentError(
        fmt::format("dist::regroup: generation {} is not newer than {}, the current one", generation, generation_));
  if (!ranks.contains(options_.rank))
    throw ArgumentError(
        fmt::format("dist::regroup: this is rank {}, which is not among {}", options_.rank, ranks.str()));
  generation_ = generation;
  const int64_t aborts = abort_count();
  std::vector<GroupEntry> whole;
  for (const GroupEntry& entry : entries()) {
    if (!entry.group->member()) continue;
    const RankSet lost = RankSet(entry.group->identity().ranks) - ranks;
    const std::string& name = entry.group->identity().name;
    entry.group->break_off(
        BreakCause::excluded,
        lost.empty() ? fmt::format("group {} could not be rebuilt", name)
                     : fmt::format("group {} needs {}, which {} lost. Make a group of the ranks that are left with "
                                   "dist::new_group, or restart the session",
                                   name, lost.words(), lost.size() == 1 ? "is" : "are"));
    entry.group->set_excluded(!lost.empty());
    entry.backend->set_transport({});
    if (lost.empty()) whole.push_back(entry);
  }
  live_ranks_ = ranks;
  connect(whole, fmt::format("regroup-{}", generation), ranks, timeout, generation, aborts);
  std::lock_guard lock(abort_flag_->mutex);
  if (abort_flag_->count != aborts) return;  // aborted again meanwhile: the groups say so
  abort_flag_->set = false;
  log_->mapping().header().aborted = 0;
}

namespace {
struct ContextHolder {
  std::mutex mutex;
  std::shared_ptr<RankContext> context;
};
// Never destroyed: a program that ends without destroy_process_group must not wait for the transport's threads.
ContextHolder& process_holder() {
  static ContextHolder* holder = new ContextHolder;
  return *holder;
}
thread_local ContextHolder* thread_holder = nullptr;
ContextHolder& holder() { return thread_holder ? *thread_holder : process_holder(); }
}  // namespace

std::shared_ptr<RankContext> current_context() {
  ContextHolder& held = holder();
  std::lock_guard lock(held.mutex);
  return held.context;
}

std::shared_ptr<RankContext> require_context(const char* function) {
  auto context = current_context();
  if (!context)
    throw Error(
        fmt::format("dist::{}: there is no process group yet; call dist::init_process_group() first", function));
  return context;
}

void set_current_context(std::shared_ptr<RankContext> context) {
  ContextHolder& held = holder();
  std::unique_lock lock(held.mutex);
  if (context && held.context)
    throw Error("the process group is initialised already; call dist::destroy_process_group() first");
  std::swap(held.context, context);
  lock.unlock();  // the old one closes its groups when it goes
}

ThreadRank::ThreadRank() { thread_holder = new ContextHolder; }
ThreadRank::~ThreadRank() {
  set_current_context({});
  delete std::exchange(thread_holder, nullptr);
}

}  // namespace lockstep::dist
