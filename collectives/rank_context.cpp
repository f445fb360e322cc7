#include "collectives/rank_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "collectives/log/meetings.h"
#include "collectives/transport/mixed_connector.h"
#include "collectives/watch/device_queries.h"
#include "python/agent/program_lines.h"

namespace lockstep::dist {

using log_layout::BreakCause;
using log_layout::EntryState;
using nlohmann::json;

namespace {

// new_group returns it to ranks outside: no collective accepts it, and its members can be asked for.
class OutsideGroup : public c10d::ProcessGroup {
 public:
  explicit OutsideGroup(int size) : c10d::ProcessGroup(-1, size) {}
};

// The watched backend stands for every part: it finds the one for a tensor itself. The default is the part for CPU
// tensors, so that c10d makes no tensor on a device for a call that has none.
void set_backends(c10d::ProcessGroup& handle, const BackendConfig& config,
                  const c10::intrusive_ptr<WatchedBackend>& watched) {
  handle.setDefaultBackend(c10d::ProcessGroup::strToBackendType(config.parts().front().backend));
  for (const BackendConfig::Part& part : config.parts())
    handle.setBackend(part.device, c10d::ProcessGroup::strToBackendType(part.backend),
                      c10::intrusive_ptr<c10d::Backend>(watched));
}

// After close(): frees the connections although users may still hold the group.
void release_connections(const GroupEntry& entry) {
  if (entry.backend) entry.backend->set_transport({});
  entry.group->prepare({});
}

}  // namespace

RankContext::RankContext(ContextOptions options)
    : options_(std::move(options)),
      world_size_(options_.world_size),
      backend_(options_.backend),
      log_(std::make_shared<CollectiveLog>(options_.log_path, options_.rank, options_.world_size)),
      watch_(std::make_shared<HangWatch>(log_->mapping())),
      recorder_(options_.recorder),
      loopback_(options_.loopback.value_or(true)),
      live_ranks_(options_.members.empty() ? RankSet::all(options_.world_size) : options_.members) {
  if (recorder_) recorder_->set_log(log_);
  use_queries_of_plugin();
  if (!options_.of_session) log_->name_addresses(agent::place_of_call);
  const GroupEntry entry = make_default(live_ranks_);
  groups_.push_back(entry);
  if (options_.generation > 0) {
    generation_ = options_.generation - 1;  // the ranks that are there already connect to it in their next regroup
    return;
  }
  start(entry);
}

GroupEntry RankContext::make_default(const RankSet& ranks) {
  const std::vector<int>& list = ranks.ranks();
  const GroupEntry entry =
      make_entry({.name = "default",
                  .number = 0,
                  .ranks = list,
                  .group_rank = static_cast<int>(std::ranges::find(list, options_.rank) - list.begin()),
                  .backend = backend_,
                  .timeout = options_.timeout});
  // A rank that is in new_group waits in the store, where closed connections do not free it. It may be in a later
  // new_group already, because the one that does not match succeeded among members that agree.
  entry.group->set_mismatch_hook([this](int64_t seq, const std::set<int64_t>& calls) {
    try {
      for (const int64_t call : calls)  // what this rank wrote for calls before `seq` may still be read
        if (call >= seq)
          options_.store->set(fmt::format("generation-{}/new-group-{}/rank-{}", generation_, call, options_.rank),
                              json{{"mismatch", seq}}.dump());
    } catch (const std::exception&) {
      // The store is gone, also for the ranks that wait in it. Their waits end with an error.
    }
  });
  return entry;
}

void RankContext::resize(int world_size, const std::string& backend) {
  world_size_ = world_size;
  backend_ = backend;
  log_->mapping().header().world_size = world_size;
}

void RankContext::set_default_ranks(const RankSet& ranks) {
  const GroupEntry before = find({});
  if (ranks == RankSet(before.group->identity().ranks)) return;
  if (!ranks.contains(options_.rank))
    throw ArgumentError(fmt::format("rank {} is not among {}", options_.rank, ranks.str()));
  if (recorder_) recorder_->stop("the ranks of the default group have changed (%dist_continue)");
  const GroupEntry now = make_default(ranks);
  {
    std::lock_guard lock(mutex_);
    groups_.front() = now;
    former_defaults_.emplace_back(before.handle);
  }
  before.group->set_mismatch_hook({});
  before.group->close();
  release_connections(before);
}

std::vector<int> RankContext::default_ranks_of(std::vector<int> ranks) const {
  const GroupEntry entry = find({});
  const std::vector<int>& all = entry.group->identity().ranks;
  for (int& rank : ranks) {
    const auto found = std::ranges::lower_bound(all, rank);
    rank = found == all.end() || *found != rank ? -1 : static_cast<int>(found - all.begin());
  }
  return ranks;
}

int RankContext::session_rank_of(int default_rank) const {
  const GroupEntry entry = find({});
  const std::vector<int>& all = entry.group->identity().ranks;
  return default_rank < 0 || default_rank >= std::ssize(all) ? -1 : all[static_cast<size_t>(default_rank)];
}

void RankContext::record(std::shared_ptr<Recorder> recorder) {
  recorder_ = std::move(recorder);
  recorded_ = {options_.rank};
  for (const auto& [rank, peer] : peers_)
    if (peer.same_machine) recorded_.insert(rank);
  for (const GroupEntry& entry : entries())
    if (entry.group->member() && entry.group->live()) {
      const auto transport = entry.backend->transport();
      const auto recording = recorded(transport, entry.group->identity());
      if (recording != transport) entry.backend->set_transport(recording);
    }
}

void RankContext::start(const GroupEntry& entry) {
  if (options_.player) {
    options_.player->set_log(log_);
    return connect({entry}, {});
  }
  claim_ = std::make_unique<StartClaim>(options_.store, options_.rank, live_ranks_);
  try {
    if (!options_.loopback) loopback_ = ranks_share_network(claim_->key());
    connect({entry}, {.key = claim_->key(), .ranks = live_ranks_, .timeout = options_.connect_timeout});
  } catch (...) {  // so that the start can be tried again
    claim_->withdraw(options_.store);
    throw;
  }
}

std::shared_ptr<StoreConnection> RankContext::new_store_connection() const {
  return std::make_shared<StoreConnection>(options_.store, options_.own_user_only);
}

RankContext::~RankContext() {
  for (const GroupEntry& entry : groups_) {
    entry.group->set_mismatch_hook({});
    entry.group->close();
    release_connections(entry);
  }
}

GroupEntry RankContext::make_entry(WatchedGroup::Identity identity) {
  GroupEntry entry;
  const int size = static_cast<int>(identity.ranks.size());
  const int group_rank = identity.group_rank;
  const std::string name = identity.name;
  const BackendConfig backend = identity.backend;
  entry.group =
      std::make_shared<WatchedGroup>(std::move(identity), log_, watch_, abort_flag_, options_.check_collectives);
  if (group_rank < 0) {
    entry.handle = c10::make_intrusive<OutsideGroup>(size);
    return entry;
  }
  entry.backend = c10::make_intrusive<WatchedBackend>(entry.group);
  entry.handle = c10::make_intrusive<c10d::ProcessGroup>(
      c10::make_intrusive<c10d::PrefixStore>("group-" + name, options_.store), group_rank, size);
  set_backends(*entry.handle, backend, entry.backend);
  entry.handle->setGroupName(name);
  entry.handle->setGroupDesc(name);
  return entry;
}

std::vector<std::pair<std::string, int>> RankContext::communicator_errors() const {
  std::vector<std::pair<std::string, int>> errors;
  for (const GroupEntry& entry : entries()) {
    if (!entry.group->member()) continue;
    try {
      errors.emplace_back(entry.group->identity().name, static_cast<int>(entry.backend->getError()));
    } catch (const std::exception&) {
      // The transport reports no such errors (Gloo), or the group has no connections at the moment.
    }
  }
  return errors;
}

std::vector<GroupEntry> RankContext::entries() const {
  std::lock_guard lock(mutex_);
  return groups_;
}

std::optional<GroupEntry> RankContext::look_up(const Group& handle) const {
  std::lock_guard lock(mutex_);
  if (!handle) return groups_.front();
  for (const GroupEntry& entry : groups_)
    if (entry.handle == handle) return entry;
  for (const auto& former : former_defaults_)
    if (former.lock() == handle) return groups_.front();
  return std::nullopt;
}

GroupEntry RankContext::find(const Group& handle) const {
  auto entry = look_up(handle);
  if (!entry)
    throw ArgumentError("this process group was not made by dist::new_group of this rank, or it was destroyed");
  return *std::move(entry);
}

int64_t RankContext::abort_count() const {
  std::lock_guard lock(abort_flag_->mutex);
  return abort_flag_->count;
}

Group RankContext::new_group(std::vector<int> ranks, std::chrono::milliseconds timeout, const std::string& backend,
                             uint64_t call_site) {
  const GroupEntry all = find({});
  const std::vector<int>& all_ranks = all.group->identity().ranks;
  const auto size = static_cast<int>(all_ranks.size());
  std::sort(ranks.begin(), ranks.end());
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size)
      throw ArgumentError(fmt::format("dist::new_group: there is no rank {}; ranks are 0 to {}", ranks[i], size - 1));
    if (i > 0 && ranks[i] == ranks[i - 1])
      throw ArgumentError(fmt::format("dist::new_group: rank {} is named twice", ranks[i]));
  }
  for (int& rank : ranks) rank = all_ranks[static_cast<size_t>(rank)];
  if (ranks.empty()) ranks = all_ranks;
  const BackendConfig config(backend.empty() ? backend_ : backend);  // an unknown name: before anyone waits
  const auto me = std::find(ranks.begin(), ranks.end(), options_.rank);

  const MakesGroup making;
  const auto identity_of = [&](int number) {
    return WatchedGroup::Identity{.name = fmt::format("group_{}", number),
                                  .number = number,
                                  .ranks = ranks,
                                  .group_rank = me == ranks.end() ? -1 : static_cast<int>(me - ranks.begin()),
                                  .backend = config,
                                  .timeout = timeout};
  };
  if (is_rejoining()) {  // the others have made it, and connect it in their next regroup
    const GroupEntry entry = make_entry(identity_of(next_group_number_++));
    std::lock_guard lock(mutex_);
    groups_.push_back(entry);
    return entry.handle;
  }
  // All ranks make the call, in the sequence of the default group; those outside only count. When a rank is lost, there
  // is no default group, and only the members meet.
  const bool all_live = (RankSet(all_ranks) - live_ranks_).empty();
  const RankSet members(ranks);
  if (!all_live && !(members - live_ranks_).empty())
    throw ArgumentError(fmt::format("dist::new_group: {} {} lost; the ranks that are left are {}",
                                    RankSet(default_ranks_of((members - live_ranks_).ranks())).words(),
                                    (members - live_ranks_).size() == 1 ? "is" : "are",
                                    RankSet(default_ranks_of((live_ranks_ & RankSet(all_ranks)).ranks())).str()));
  const int64_t aborts = abort_count();  // before the call is logged: an abort after that is meant for it
  Entered entered;
  std::string key;
  if (all_live) {
    entered = all.backend->enter_new_group(std::vector<int64_t>(ranks.begin(), ranks.end()), call_site);
    key = fmt::format("generation-{}/new-group-{}", generation_, entered.seq);
  } else {
    key = fmt::format("generation-{}/new-group-without-default-{}", generation_, next_group_number_);
  }
  const int number = next_group_number_++;
  GroupEntry entry;
  try {
    entry = make_entry(identity_of(number));
    {
      std::lock_guard lock(mutex_);
      groups_.push_back(entry);  // before it is connected: abort() frees what it finds here
    }
    if (all_live)
      all.group->throw_if_mismatched();  // one that is seen later is written into the store, where the others wait
    if (me != ranks.end())
      connect({entry}, {.key = key,
                        .ranks = members,
                        .timeout = options_.connect_timeout,
                        .generation = generation_,
                        .abort_count = aborts});
  } catch (...) {  // the log needs an end of the call
    forget(entry);
    if (all_live) all.group->finish(entered, EntryState::failed);
    throw;
  }
  if (all_live) all.group->finish(entered, EntryState::done);
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
  release_connections(entry);
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
  call_abort_listener();
}

void RankContext::set_abort_listener(std::function<void()> listener) {
  std::lock_guard lock(mutex_);
  abort_listener_ = std::move(listener);
}

void RankContext::call_abort_listener() const {
  std::function<void()> listener;
  {
    std::lock_guard lock(mutex_);
    listener = abort_listener_;
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
  call_abort_listener();
}

RankSet RankContext::left_ranks() const {
  const int64_t cell = log_->mapping().header().cell;
  std::lock_guard lock(mutex_);
  RankSet left;
  for (const auto& [rank, of_cell] : departures_)
    if (of_cell == cell && cell > 0) left.insert(rank);
  return left;
}

void RankContext::check_device_works() const {
  for (const GroupEntry& entry : entries())
    if (entry.group->member()) entry.group->check_device_works();
}

bool RankContext::needs_regroup() const {
  for (const GroupEntry& entry : entries())
    if (entry.group->member() && !entry.group->live() && !entry.group->excluded()) return true;
  return false;
}

void RankContext::begin_recorded_cell(int64_t number) {
  if (recorder_) recorder_->begin_cell(number, next_group_number_);
  if (!options_.player) return;
  const Player::CellBegun begun = options_.player->begin_cell(number);
  for (size_t i = 0; i < begun.regroups; ++i) regroup(generation_ + 1, live_ranks_, options_.timeout);
  if (begun.next_group > 0) next_group_number_ = begun.next_group;  // a regroup may have brought others' numbers
}

void RankContext::regroup(int64_t generation, const RankSet& given, std::chrono::milliseconds timeout,
                          std::optional<int64_t> aborts_before) {
  RankSet ranks = given;
  if (options_.player) {
    ranks = options_.player->take_regroup().value_or(live_ranks_);
    generation = std::max(generation, generation_ + 1);  // those as recorded count, too
  }
  if (recorder_ && !(recorded_ - ranks).empty())
    recorder_->stop(
        fmt::format("{} ended, and can't keep a share of what others receive", (recorded_ - ranks).words()));
  if (recorder_) recorder_->note_regroup(ranks);
  if (generation <= generation_)
    throw ArgumentError(
        fmt::format("dist::regroup: generation {} is not newer than {}, the current one", generation, generation_));
  if (!ranks.contains(options_.rank))
    throw ArgumentError(
        fmt::format("dist::regroup: this is rank {}, which is not among {}", options_.rank, ranks.str()));
  generation_ = generation;
  const int64_t aborts = aborts_before.value_or(abort_count());
  std::vector<GroupEntry> complete;  // groups without a lost member
  for (const GroupEntry& entry : entries()) {
    if (!entry.group->member()) continue;
    const RankSet lost = RankSet(entry.group->identity().ranks) - ranks;
    const std::string& name = entry.group->identity().name;
    const bool is_default_of_session = options_.of_session && entry.group->identity().number == 0;
    entry.group->break_off(
        BreakCause::excluded,
        lost.empty()
            ? fmt::format("group {} could not be rebuilt", name)
            : fmt::format("group {} needs {}, which {} lost. {}", name, lost.words(), lost.size() == 1 ? "is" : "are",
                          is_default_of_session
                              ? "%dist_continue makes the ranks that are left the default group, %restart "
                                "starts the lost ones again"
                              : "Make a group of the ranks that are left with dist::new_group, or restart "
                                "the session"));
    entry.group->set_excluded(!lost.empty());
    entry.backend->set_transport({});
    if (lost.empty()) complete.push_back(entry);
  }
  live_ranks_ = ranks;
  connect(complete, {.key = fmt::format("regroup-{}", generation),
                     .ranks = ranks,
                     .timeout = timeout,
                     .generation = generation,
                     .abort_count = aborts});
  std::lock_guard lock(abort_flag_->mutex);
  if (abort_flag_->count != aborts) return;  // aborted again meanwhile: the groups are broken off
  abort_flag_->set = false;
  log_->mapping().header().aborted = 0;
}

}  // namespace lockstep::dist
