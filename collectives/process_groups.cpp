// Makes and ends process groups, and answers questions about them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "collectives/dist.h"
#include "collectives/environment.h"
#include "collectives/group_arguments.h"
#include "collectives/rank_context.h"
#include "collectives/transport/backend_config.h"
#include "collectives/transport/backend_factory.h"
#include "collectives/transport/interposed.h"
#include "collectives/watch/arguments.h"
#include "collectives/watched_rank.h"
#include "protocol/whole_number.h"

namespace lockstep::dist {

void init_process_group(const InitOptions& options) {
  if (current_context())
    throw Error(
        "the process group is initialised already, as it always is in a session; call dist::destroy_process_group() "
        "first to make it anew");
  const std::string backend =
      options.backend.empty() ? (has_backend("nccl") ? "cpu:gloo,cuda:nccl" : "gloo") : options.backend;
  const BackendConfig named(backend);  // an unknown name: before anyone waits
  if (names_no_world(options) && join_session_again(options)) return;
  const std::string log_of_job = join_watched_job(options);  // before the ranks wait for one another
  const RendezvousInfo rendezvous = find_rendezvous(options);
  set_current_context(std::make_shared<RankContext>(
      ContextOptions{.rank = rendezvous.rank,
                     .world_size = rendezvous.world_size,
                     .store = rendezvous.store,
                     .backend = backend,
                     .timeout = options.timeout,
                     .connect_timeout = std::min(options.timeout, options.connect_timeout),
                     .log_path = options.log_path.empty() ? log_of_job : options.log_path,
                     .check_collectives = options.check_collectives,
                     .loopback = rendezvous.loopback}));
  answer_from(current_context()->log());
}

void init_process_group(const std::string& backend, const std::string& init_method, std::chrono::milliseconds timeout,
                        int world_size, int rank, Store store) {
  init_process_group(InitOptions{.backend = backend,
                                 .init_method = init_method,
                                 .timeout = timeout,
                                 .world_size = world_size,
                                 .rank = rank,
                                 .store = std::move(store)});
}

void destroy_process_group(const Group& group) {
  const auto context = require_context("destroy_process_group");
  if (!group || context->find(group).handle == context->find({}).handle)
    set_current_context({});
  else
    context->destroy_group(group);
}

Group new_group(std::vector<int> ranks, std::chrono::milliseconds timeout, const std::string& backend) {
  const auto site = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  check_limit("new_group", "timeout", timeout);
  return require_context("new_group")->new_group(std::move(ranks), timeout, backend, site);
}

bool is_available() { return true; }
bool is_initialized() { return current_context() != nullptr; }
bool is_backend_available(const std::string& backend) { return has_backend(backend); }
bool is_gloo_available() { return has_backend("gloo"); }
bool is_nccl_available() { return has_backend("nccl"); }
bool is_mpi_available() { return has_backend("mpi"); }
bool is_ucc_available() { return has_backend("ucc"); }
bool is_xccl_available() { return has_backend("xccl"); }
bool is_interposer_active() { return interposed(); }
bool is_torchelastic_launched() { return std::getenv("TORCHELASTIC_RUN_ID") != nullptr; }

std::string get_default_backend_for_device(const std::string& device) {
  const c10::DeviceType type = c10::Device(device).type();
  for (const char* name : {"gloo", "nccl"})
    if (has_backend(name) && find_backend(name).device == type) return name;
  throw ArgumentError(fmt::format("dist::get_default_backend_for_device: no backend here takes tensors on {}", device));
}

int get_node_local_rank(std::optional<int> fallback_rank) {
  if (const char* text = std::getenv("LOCAL_RANK"); text && *text) {
    if (const auto rank = protocol::whole_number<int>(text, 0)) return *rank;
    throw ArgumentError(fmt::format("LOCAL_RANK is '{}'; it must be a whole number from 0", text));
  }
  if (fallback_rank) return *fallback_rank;
  const auto context = current_context();
  if (!context)
    throw Error(
        "dist::get_node_local_rank: LOCAL_RANK is not set, and there is no process group. A launcher sets it; else "
        "give "
        "a fallback: get_node_local_rank(0)");
  int before = 0;
  for (const auto& [rank, peer] : context->peers())
    if (peer.same_machine && rank < context->rank()) ++before;
  return before;
}

int get_pg_count() { return require_context("get_pg_count")->group_count(); }

bool supports_complex(const c10d::ReduceOp& op) { return c10d::isComplexViewAsRealAllowed(op); }

DebugLevel get_debug_level() { return c10d::debug_level(); }
void set_debug_level(DebugLevel level) { c10d::setDebugLevel(level); }
void set_debug_level_from_env() { c10d::setDebugLevelFromEnvironment(); }

int get_rank(const Group& group) { return require_context("get_rank")->find(group).group->identity().group_rank; }

int get_world_size(const Group& group) {
  const GroupEntry entry = require_context("get_world_size")->find(group);
  return entry.group->member() ? static_cast<int>(entry.group->identity().ranks.size()) : -1;
}

std::string get_backend(const Group& group) {
  return require_context("get_backend")->find(group).group->identity().backend.str();
}

std::string get_backend_config(const Group& group) {
  return require_context("get_backend_config")->find(group).group->identity().backend.by_device();
}

std::string get_group_name(const Group& group) {
  return require_context("get_group_name")->find(group).group->identity().name;
}

std::vector<int> get_process_group_ranks(const Group& group) {
  return require_context("get_process_group_ranks")->default_ranks_of(session_ranks(group));
}

int get_global_rank(const Group& group, int group_rank) {
  const auto ranks = get_process_group_ranks(group);
  if (group_rank < 0 || group_rank >= static_cast<int>(ranks.size()))
    throw ArgumentError(fmt::format("dist::get_global_rank: group {} has no rank {}; its ranks go from 0 to {}",
                                    get_group_name(group), group_rank, ranks.size() - 1));
  return ranks[static_cast<size_t>(group_rank)];
}

int get_group_rank(const Group& group, int global_rank) {
  return require_rank("get_group_rank", "global_rank", global_rank, require_context("get_group_rank")->find(group));
}

Group default_group() { return require_context("default_group")->find({}).handle; }

int64_t get_generation(const Group& group) {
  const Group handle = group ? group : default_group();
  const auto backend = handle->getDefaultBackend();
  const auto* watched = dynamic_cast<const WatchedBackend*>(backend.get());
  return watched ? watched->generation() : 0;
}

void abort(const std::string& reason) {
  if (const auto context = current_context()) context->abort(reason);
}

void regroup(int64_t generation, const RankSet& ranks, std::chrono::milliseconds timeout) {
  require_context("regroup")->regroup(generation, ranks, timeout);
}

}  // namespace lockstep::dist
