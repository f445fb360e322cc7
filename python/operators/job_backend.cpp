#include "python/operators/job_backend.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "collectives/backend/backend.h"
#include "collectives/log/collective_log.h"
#include "collectives/log/collective_log_layout.h"
#include "collectives/log/meetings.h"
#include "collectives/log/process_identity.h"
#include "collectives/log/record_answer.h"
#include "collectives/rendezvous.h"
#include "collectives/transport/backend_config.h"
#include "collectives/transport/backend_factory.h"
#include "collectives/transport/mixed_connector.h"
#include "collectives/transport/store_connection.h"
#include "collectives/transport/transport_text.h"
#include "collectives/watch/caller.h"
#include "collectives/watch/device_queries.h"
#include "collectives/watch/watched_backend.h"
#include "collectives/watched_rank.h"
#include "protocol/dist_error.h"
#include "python/operators/job_log.h"
#include "python/operators/record.h"

namespace lockstep::python {
namespace {

using dist::Store;
using nlohmann::json;
using Transport = c10::intrusive_ptr<c10d::Backend>;

constexpr const char* kAdvice =
    "Its connections are closed: the job has to end, or to make its process groups anew "
    "(dist.destroy_process_group(), dist.init_process_group())";

/// A transport that Python has made: NCCL's, which connects when it is first used.
class GivenConnector : public dist::BackendConnector {
 public:
  explicit GivenConnector(Transport transport) : transport_(std::move(transport)) {}

  std::string announcement() override { return transport_->getBackendName(); }
  Transport connect(const Store&, const std::vector<std::string>&, std::chrono::milliseconds) override {
    return transport_;
  }
  void interrupt() noexcept override {
    try {
      transport_->abort();
    } catch (const std::exception&) {  // it has ended
    }
  }
  void close() override { transport_->shutdown(); }
  bool lost_connection() const noexcept override { return false; }

 private:
  const Transport transport_;
};

/// Goes to the factory of "nccl", which make_connector calls on this thread.
thread_local Transport given_for_cuda;

void take_nccl_from_python() {
  static std::once_flag once;
  std::call_once(once, [] {
    dist::register_backend("nccl", c10::DeviceType::CUDA, [](const dist::GroupDescription&) {
      return std::make_unique<GivenConnector>(std::exchange(given_for_cuda, {}));
    });
  });
}

class JobBackend : public dist::WatchedBackend {
 public:
  using WatchedBackend::WatchedBackend;

  const std::string getBackendName() const override { return "lockstep"; }

  // Peers may still be at a collective that this rank is done with.
  void shutdown() override {
    if (ended_.exchange(true)) return;
    group()->close();
    set_transport({});
    group()->prepare({});
  }

 private:
  std::atomic<bool> ended_ = false;
};

/// torch 2.11 to 2.13 give a group of "cpu:lockstep,cuda:lockstep" Gloo as its default backend, which it has not, so that
/// questions about the group fail. The group can be looked up by its name once it is complete: at its first collective.
struct DefaultBackends {
  struct Made {
    std::string name;
    c10::weak_intrusive_ptr<c10d::Backend> backend;  // which ends with its group
  };
  std::mutex mutex;
  std::vector<Made> unseen;  // groups that were made and may not be complete
  std::atomic<bool> any = false;
};
DefaultBackends& default_backends() {
  static auto* all = new DefaultBackends;
  return *all;
}

void choose_default_backends() {
  DefaultBackends& all = default_backends();
  if (!all.any.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.unseen, [](const DefaultBackends::Made& each) {
    if (each.backend.expired()) return true;
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    try {
      group = c10d::resolve_process_group(each.name);
    } catch (const std::exception&) {  // it is not registered yet
      return false;
    }
    try {
      group->getDefaultBackend();
    } catch (const std::exception&) {  // the default is one that it has not
      group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    }
    return true;
  });
  all.any.store(!all.unseen.empty(), std::memory_order_release);
}

dist::Caller before_collective() {
  choose_default_backends();
  return find_python_caller();
}

/// Returns a key that no earlier group of this name has had: a program may destroy its groups and make them again, in
/// the same store. All ranks do so equally often.
std::string fresh_key(const std::string& group) {
  static std::mutex mutex;
  static auto* counts = new std::map<std::string, int>;
  const std::lock_guard lock(mutex);
  return fmt::format("lockstep-{}", ++(*counts)[group]);
}

struct Description {
  std::string group;  // c10d's name of it
  std::string label;  // in logs and errors
  int rank = 0, global_rank = 0, world_size = 1;
  std::vector<int> ranks;
  std::chrono::milliseconds timeout{};
};

/// Returns the ranks of the group, by their number in the default group.
std::map<int, dist::Peer> read_peers(const Description& mine, const std::map<int, json>& announcements) {
  const json& own = announcements.at(mine.global_rank);
  std::map<int, dist::Peer> peers;
  for (const auto& [rank, theirs] : announcements) {
    if (theirs.at("ranks") != own.at("ranks"))
      throw dist::Error(
          fmt::format("rank {} makes group {} with other ranks than rank {}", rank, mine.group, mine.global_rank));
    dist::Peer peer{.rank = rank,
                    .same_machine = theirs.at("machine") == own.at("machine"),
                    .pid = theirs.at("pid"),
                    .process_start = theirs.at("start")};
    if (peer.same_machine && rank != mine.global_rank)
      peer.log = std::make_shared<const dist::LogMapping>(dist::LogMapping::open(theirs.at("log").get<std::string>()));
    peers[rank] = std::move(peer);
  }
  return peers;
}

/// Has the ranks of a group connect, once all of them are here.
void connect_peers(JobBackend& backend, const Description& mine, const Store& store, const std::string& key,
                   const std::shared_ptr<dist::BackendConnector>& connector, const dist::CollectiveLog& log,
                   int64_t generation) {
  dist::WatchedGroup& group = *backend.group();
  group.prepare(connector);
  const auto recording = recorder(current_job_log()->log, mine.global_rank, mine.world_size);
  const auto announcements = dist::exchange(store, key + "/rank", mine.global_rank, RankSet(mine.ranks),
                                            {{"ranks", mine.ranks},
                                             {"machine", dist::machine_identity()},
                                             {"records", recording != nullptr},
                                             {"pid", ::getpid()},
                                             {"made", dist::monotonic_ns()},
                                             {"start", dist::process_start_time(::getpid()).value_or(0)},
                                             {"log", log.mapping().shared_path()},
                                             {"slot", group.slot()},
                                             {"seq", group.seq()},
                                             {"address", connector->announcement()}},
                                            mine.timeout);
  const std::map<int, dist::Peer> peers = read_peers(mine, announcements);
  std::vector<std::string> addresses;
  std::vector<dist::PeerInGroup> members;
  int64_t seq = 0;  // of the rank that has come furthest
  for (size_t i = 0; i < mine.ranks.size(); ++i) {
    const json& theirs = announcements.at(mine.ranks[i]);
    addresses.push_back(theirs.at("address"));
    seq = std::max(seq, theirs.at("seq").get<int64_t>());
    if (mine.ranks[i] != mine.global_rank)
      members.push_back({peers.at(mine.ranks[i]), static_cast<int>(i), theirs.at("slot").get<uint32_t>()});
  }
  auto transport = connector->connect(c10::make_intrusive<c10d::PrefixStore>(key, store), addresses, mine.timeout);
  if (recording) {
    RankSet sharing;
    for (const auto& [rank, theirs] : announcements)
      if (peers.at(rank).same_machine && theirs.at("records")) sharing.insert(rank);
    transport =
        recording->record(std::move(transport), mine.label, group.identity().backend.str(), sharing, generation);
  }
  backend.set_transport(std::move(transport));
  group.connected(std::move(members), seq, generation, dist::incarnation_of(mine.group, mine.ranks, announcements));
}

/// The groups of this rank, in the order in which they were made. They end with c10d's groups.
struct MadeGroup {
  Description description;
  Store store;
  bool loopback = false;
  c10::weak_intrusive_ptr<JobBackend> backend;
};
struct MadeGroups {
  std::mutex mutex;
  std::vector<MadeGroup> all;
};
MadeGroups& made_groups() {
  static auto* groups = new MadeGroups;
  return *groups;
}

/// Returns those that are there, with their backends.
std::vector<std::pair<MadeGroup, c10::intrusive_ptr<JobBackend>>> living_groups() {
  MadeGroups& groups = made_groups();
  const std::lock_guard lock(groups.mutex);
  std::vector<std::pair<MadeGroup, c10::intrusive_ptr<JobBackend>>> living;
  std::erase_if(groups.all, [&](const MadeGroup& each) {
    auto backend = each.backend.lock();
    if (!backend) return true;
    living.emplace_back(each, std::move(backend));
    return false;
  });
  return living;
}

void remember(const Description& mine, const Store& store, bool loopback,
              const c10::intrusive_ptr<JobBackend>& backend) {
  MadeGroups& groups = made_groups();
  const std::lock_guard lock(groups.mutex);
  groups.all.push_back({mine, store, loopback, c10::weak_intrusive_ptr<JobBackend>(backend)});
}

/// The connection in which this rank waits for the others to connect its groups again, for abort_job_groups.
struct Rendezvous {
  std::mutex mutex;
  std::shared_ptr<dist::StoreConnection> store;
};
Rendezvous& rendezvous() {
  static auto* only = new Rendezvous;
  return *only;
}

void set_rendezvous(std::shared_ptr<dist::StoreConnection> store) {
  const std::lock_guard lock(rendezvous().mutex);
  rendezvous().store = std::move(store);
}

/// Calls `meet` with a connection of its own to where `store` is. An abort_job_groups ends it that comes when there
/// were `aborts` of them.
void meet_until_aborted(const Store& store, int64_t aborts, std::chrono::milliseconds timeout,
                        const std::function<void(const Store&)>& meet) {
  const auto throw_if_aborted = [&] {
    dist::AbortFlag& flag = *current_job_log()->abort;
    const std::lock_guard lock(flag.mutex);
    if (flag.count != aborts)
      throw dist::Aborted(fmt::format("connecting the process groups was aborted: {}", flag.reason), flag.reason);
  };
  const auto own = std::make_shared<dist::StoreConnection>(store);
  set_rendezvous(own);
  try {
    throw_if_aborted();
    own->connect(timeout);
    own->store()->setTimeout(timeout);
    meet(own->store());
  } catch (const std::exception&) {
    set_rendezvous({});
    throw_if_aborted();
    throw;
  }
  set_rendezvous({});
  throw_if_aborted();
}

/// Returns what this rank wishes for CPU tensors: shared memory, or what LOCKSTEP_BACKEND says, which may be unknown.
/// Where there are tensors of devices, Gloo has to take all of them.
std::string wish_for_cpu() {
  const char* const text = std::getenv("LOCKSTEP_BACKEND");
  std::string wish = text && *text ? text : "auto";
  // A job that a cell has started inherits the variable of a session, which may be on GPUs.
  if (wish == "auto" || wish.ends_with("nccl")) wish = dist::kSharedMemory;
  return wish == dist::kSharedMemory && dist::BackendConfig("gloo").device_part() ? "gloo" : wish;
}

/// `shares`: all ranks are on this machine, and wish for shared memory.
dist::BackendConfig choose_backend(const Description& mine, bool has_cuda, bool shares) {
  if (has_cuda) return dist::BackendConfig("cpu:gloo,cuda:nccl");
  const bool fits = mine.ranks.size() <= static_cast<size_t>(dist::log_layout::kMostSharingRanks);
  return dist::BackendConfig(shares && fits ? dist::kSharedMemory : "gloo");
}

c10::intrusive_ptr<JobBackend> make_backend(const Description& mine, const JobLog& shared,
                                            const dist::BackendConfig& config, bool check,
                                            const char* advice = kAdvice) {
  return c10::make_intrusive<JobBackend>(
      std::make_shared<dist::WatchedGroup>(dist::WatchedGroup::Identity{.name = mine.label,
                                                                        .number = 0,
                                                                        .ranks = mine.ranks,
                                                                        .group_rank = mine.rank,
                                                                        .backend = config,
                                                                        .timeout = mine.timeout,
                                                                        .advice = advice},
                                           shared.log, shared.watch, shared.abort, check));
}

std::shared_ptr<dist::BackendConnector> connector_of(const dist::WatchedGroup& group, const std::string& name,
                                                     bool loopback) {
  const auto& identity = group.identity();
  return make_connector(identity.backend, {.name = name,
                                           .group_rank = identity.group_rank,
                                           .ranks = identity.ranks,
                                           .timeout = identity.timeout,
                                           .loopback = loopback,
                                           .log = group.in_log()});
}

c10::intrusive_ptr<JobBackend> connect(const Description& mine, const Store& store, Transport cuda, bool check) {
  const JobLog shared = use_job_log(mine.global_rank, mine.world_size);
  const std::string key = fresh_key(mine.group);
  const RankSet all(mine.ranks);
  const bool has_cuda = static_cast<bool>(cuda);
  const auto meet = [&](const std::string& what, const json& value) {
    return dist::exchange(store, key + "/" + what, mine.global_rank, all, value, mine.timeout);
  };

  const auto networks = meet("network", {dist::network_identity(), has_cuda, wish_for_cpu()});
  const json& own = networks.at(mine.global_rank);
  for (const auto& [rank, theirs] : networks)
    if (theirs.at(1) != own.at(1))
      throw dist::Error(fmt::format("rank {} has {} for CUDA tensors in group {}, and rank {} has {}", rank,
                                    theirs.at(1) ? "NCCL" : "Gloo", mine.group, mine.global_rank,
                                    own.at(1) ? "NCCL" : "Gloo"));
  const bool loopback = std::ranges::all_of(networks, [&](const auto& each) { return each.second.at(0) == own.at(0); });
  bool shares = loopback;
  for (const auto& [rank, theirs] : networks) {
    const std::string wish = theirs.at(2);
    if (wish != "gloo" && wish != dist::kSharedMemory)
      throw dist::Error(
          fmt::format("LOCKSTEP_BACKEND is '{}' on rank {}; it has to be auto, gloo or shared_memory", wish, rank));
    shares = shares && wish == dist::kSharedMemory;
  }

  if (has_cuda) {
    take_nccl_from_python();
    dist::use_queries_of_plugin();
  }
  auto backend = make_backend(mine, shared, choose_backend(mine, has_cuda, shares), check);

  given_for_cuda = std::move(cuda);
  const auto connector = connector_of(*backend->group(), mine.group, loopback);
  connect_peers(*backend, mine, store, key, connector, *shared.log, 0);
  remember(mine, store, loopback, backend);
  return backend;
}

/// Makes the group of a process that replaces a lost rank: the others have it, and are connected to it in their next
/// reconnect_job_backend().
c10::intrusive_ptr<JobBackend> make_unconnected(const Description& mine, const Store& store, bool has_cuda, bool check,
                                                bool loopback) {
  fresh_key(mine.group);  // counted as on the others
  if (has_cuda) {
    take_nccl_from_python();
    dist::use_queries_of_plugin();
  }
  auto backend = make_backend(mine, use_job_log(mine.global_rank, mine.world_size),
                              choose_backend(mine, has_cuda, loopback && wish_for_cpu() == dist::kSharedMemory), check);
  remember(mine, store, loopback, backend);
  return backend;
}

/// Makes the group of a process that replays a rank: the others are not there, and it gets what the rank has received.
c10::intrusive_ptr<JobBackend> make_played(const Description& mine) {
  const JobLog shared = use_job_log(mine.global_rank, mine.world_size);
  auto backend = make_backend(mine, shared, dist::BackendConfig(player()->backend_of(mine.label)), /*check=*/false,
                              "The replay of this rank ends here");
  player()->set_log(shared.log);
  player()->connect(*backend, mine.label, 0);
  return backend;
}

}  // namespace

json make_job_backend(const Call& call) {
  const json& arguments = call.arguments;
  const auto box = c10d::resolve_process_group(arguments.at("box").get<std::string>());
  const Description mine{.group = arguments.at("group"),
                         .label = arguments.at("label"),
                         .rank = arguments.at("rank"),
                         .global_rank = arguments.at("global_rank"),
                         .world_size = arguments.at("world_size"),
                         .ranks = arguments.at("ranks").get<std::vector<int>>(),
                         .timeout = duration_of(arguments.at("timeout"))};
  Transport cuda;
  if (arguments.at("cuda")) cuda = box->getBackend(c10::DeviceType::CUDA);
  c10::intrusive_ptr<JobBackend> backend;
  try {
    backend = is_replay()                ? make_played(mine)
              : arguments.at("connects") ? connect(mine, box->getStore(), std::move(cuda), arguments.at("check"))
                                         : make_unconnected(mine, box->getStore(), static_cast<bool>(cuda),
                                                            arguments.at("check"), arguments.at("loopback"));
  } catch (const dist::Error& error) {
    throw dist::Error(fmt::format("process group {} could not be made: {}", mine.group, error.what()));
  } catch (const std::exception&) {
    throw dist::Error(fmt::format("process group {} could not be made: {}", mine.group,
                                  dist::transport_text(std::current_exception())));
  }
  {
    DefaultBackends& all = default_backends();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.unseen, [&](const DefaultBackends::Made& each) { return each.name == mine.group; });
    all.unseen.push_back({mine.group, c10::weak_intrusive_ptr<c10d::Backend>(backend)});
    all.any.store(true, std::memory_order_release);
  }
  dist::set_caller_finder(before_collective);
  box->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                  c10::intrusive_ptr<c10d::Backend>(std::move(backend)));
  return json::object();
}

json job_groups() {
  json names = json::array();
  for (const auto& [group, backend] : living_groups()) names.push_back(group.description.group);
  return {{"groups", names}};
}

std::optional<JobRanks> ranks_of_job_group(const std::string& group) {
  for (const auto& [made, backend] : living_groups())
    if (const Description& each = made.description; each.group == group)
      return JobRanks{.rank = each.global_rank, .world_size = each.world_size, .ranks = each.ranks};
  return std::nullopt;
}

json resize_job(const Call& call) {
  const int world_size = call.arguments.at("world_size");
  resize_job_log(world_size);
  MadeGroups& groups = made_groups();
  const std::lock_guard lock(groups.mutex);
  for (MadeGroup& each : groups.all) each.description.world_size = world_size;
  return json::object();
}

json compare_job_groups(const Call& call) {
  const json& arguments = call.arguments;
  const auto groups = living_groups();
  json missing = json::object(), fresh = json::array();
  if (groups.empty()) return {{"missing", missing}, {"fresh", fresh}};
  const MadeGroup& first = groups.front().first;  // the default group, which all ranks have
  json mine = json::object();
  for (const auto& [made, backend] : groups) mine[made.description.group] = made.description.ranks;
  const auto timeout = duration_of(arguments.at("timeout"));
  std::map<int, json> theirs;
  meet_until_aborted(first.store, arguments.at("aborts"), timeout, [&](const Store& store) {
    theirs = dist::exchange(store, fmt::format("regroup-{}/groups", arguments.at("generation").get<int64_t>()),
                            first.description.global_rank, RankSet(arguments.at("live").get<std::vector<int>>()),
                            {{"groups", mine}, {"is_fresh", arguments.at("is_fresh")}}, timeout);
  });
  for (const auto& [rank, said] : theirs)
    if (said.at("is_fresh")) fresh.push_back(rank);
  for (const auto& [made, backend] : groups) {
    RankSet without;
    for (const int rank : made.description.ranks) {
      const auto said = theirs.find(rank);
      if (said == theirs.end()) continue;
      const json& theirs_made = said->second.at("groups");
      const auto found = theirs_made.find(made.description.group);
      // Ranks that ran the cell again may have counted in another default group than those that ran it at its time.
      if (found == theirs_made.end() || *found != json(made.description.ranks)) without.insert(rank);
    }
    if (!without.empty()) missing[made.description.group] = without.ranks();
  }
  return {{"missing", missing}, {"fresh", fresh}};
}

json reconnect_job_backend(const Call& call) {
  const json& arguments = call.arguments;
  const RankSet without(arguments.at("without").get<std::vector<int>>());
  const RankSet live(arguments.at("live").get<std::vector<int>>());
  const int64_t generation = arguments.at("generation");
  for (const auto& [made, backend] : living_groups()) {
    const Description& mine = made.description;
    if (mine.group != arguments.at("group").get<std::string>()) continue;
    dist::WatchedGroup& group = *backend->group();
    const RankSet lost = RankSet(mine.ranks) - live;
    group.break_off(dist::log_layout::BreakCause::excluded,
                    !lost.empty()     ? fmt::format("group {} needs {}, which {} lost{}", mine.label, lost.words(),
                                                lost.size() == 1 ? "is" : "are",
                                                mine.label.starts_with("default")
                                                        ? ". %dist_continue makes the ranks that are left the default "
                                                          "group, %restart starts the lost ones again"
                                                        : "")
                    : without.empty() ? fmt::format("group {} could not be connected again", mine.label)
                                      : fmt::format("{} {} not made group {} with the same ranks: make a new one with "
                                                    "dist.new_group on all ranks",
                                                    without.words(), without.size() == 1 ? "has" : "have", mine.label));
    const bool is_whole = lost.empty() && without.empty();
    group.set_excluded(!is_whole);
    backend->set_transport({});
    if (!is_whole) continue;
    const auto box = c10d::resolve_process_group(arguments.at("box").get<std::string>());
    if (arguments.at("cuda")) given_for_cuda = box->getBackend(c10::DeviceType::CUDA);
    const auto connector = connector_of(group, mine.label, made.loopback);
    Description timed = mine;
    timed.timeout = duration_of(arguments.at("timeout"));
    meet_until_aborted(made.store, arguments.at("aborts"), timed.timeout, [&](const Store& store) {
      connect_peers(*backend, timed, store, fmt::format("regroup-{}", generation), connector, *job_log(), generation);
    });
  }
  return json::object();
}

json abort_job_groups(const Call& call) {
  const auto log = current_job_log();
  if (!log) return json::object();
  const std::string reason = call.arguments.at("reason");
  {
    const std::lock_guard lock(log->abort->mutex);
    log->abort->reason = reason;
    log->abort->set = true;
    ++log->abort->count;
  }
  dist::log_layout::Header& header = log->log->mapping().header();
  std::strncpy(header.reason, reason.c_str(), sizeof header.reason - 1);
  header.aborted = 1;
  for (const auto& [made, backend] : living_groups())
    backend->group()->break_off(dist::log_layout::BreakCause::aborted, fmt::format("aborted: {}", reason));
  const std::lock_guard lock(rendezvous().mutex);
  if (rendezvous().store) rendezvous().store->interrupt();
  return json::object();
}

json job_aborts(const Call&) {
  const auto log = current_job_log();
  if (!log) return {{"count", 0}};
  const std::lock_guard lock(log->abort->mutex);
  return {{"count", log->abort->count}};
}

json end_job_abort(const Call& call) {
  if (const auto log = current_job_log()) {
    const std::lock_guard lock(log->abort->mutex);
    if (log->abort->count != call.arguments.at("aborts").get<int64_t>()) return json::object();  // aborted again
    log->abort->set = false;
    log->log->mapping().header().aborted = 0;
  }
  return json::object();
}

json enter_cell(const Call& call) {
  if (const auto log = job_log()) log->set_context(call.arguments.at("cell"), call.arguments.at("step"));
  return {{"meetings", dist::meetings()}};
}

json make_wrapper(const Call& call) {
  if (call.arguments.at("begins"))
    dist::MakesGroup::begin();
  else
    dist::MakesGroup::end();
  return json::object();
}

json leave_cell(const Call&) {
  const auto log = job_log();
  bool is_broken = false;
  auto progress = log ? dist::CollectiveLogReader(log->mapping()).progress() : std::map<std::string, int64_t>();
  for (const auto& [made, backend] : living_groups()) {
    if (backend->group()->excluded())
      progress.erase(made.description.label);  // its ranks may have left it at different collectives
    else
      is_broken = is_broken || !backend->group()->live();
  }
  return {{"meetings", dist::meetings()}, {"regroup", is_broken}, {"collectives", progress}};
}

json calls_in_flight(const Call&) {
  json calls = json::array();
  std::string last;
  if (const auto log = job_log()) {
    const dist::CollectiveLogReader reader(log->mapping());
    for (const dist::CollectiveRecord& record : reader.in_flight()) {
      calls.emplace_back(dist::describe_to_shell(record, record.place.line_str()));
      calls.back()["entry"] = record.entry;
    }
    if (const auto records = reader.last(1); !records.empty()) last = records.front().place.line_str();
  }
  return {{"calls", calls}, {"last", last}};
}

json progress_of_job_log() {
  const auto log = job_log();
  return log ? dist::progress_of(*log) : json::object();
}

}  // namespace lockstep::python
