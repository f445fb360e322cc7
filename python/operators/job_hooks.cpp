#include "python/operators/job_hooks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <ranges>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "collectives/log/process_identity.h"
#include "collectives/watch/watched_call.h"
#include "collectives/watch/watched_group.h"
#include "protocol/dist_error.h"
#include "protocol/job.h"
#include "python/agent/agent.h"
#include "python/operators/job_log.h"

namespace lockstep::python {

using nlohmann::json;

#if LOCKSTEP_C10D_HAS_WINDOW

namespace {

using dist::CollectiveOp;

constexpr int64_t kHookId = 0x10C5;
constexpr int kLooks = 200;  // calls at which logs of other ranks are looked for: some machines have a part of the job

/// Returns nothing for what is not logged: messages, and what moves no data.
std::optional<CollectiveOp> op_of(c10d::HookOpName name) {
  using enum c10d::HookOpName;
  switch (name) {
    case BROADCAST:
      return CollectiveOp::broadcast;
    case ALLREDUCE:
      return CollectiveOp::all_reduce;
    case REDUCE:
      return CollectiveOp::reduce;
    case ALLGATHER:
      return CollectiveOp::all_gather;
    case REDUCE_SCATTER:
      return CollectiveOp::reduce_scatter;
    case ALLTOALL:
      return CollectiveOp::all_to_all;
    case BARRIER:
      return CollectiveOp::barrier;
    case SCATTER:
      return CollectiveOp::scatter;
    case GATHER:
      return CollectiveOp::gather;
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 15)  // before, each of these has the name of its family
    case ALLREDUCE_COALESCED:
      return CollectiveOp::all_reduce_coalesced;
    case ALLGATHER_BASE:
      return CollectiveOp::all_gather_into_tensor;
    case ALLGATHER_COALESCED:
      return CollectiveOp::all_gather_coalesced;
    case ALLGATHER_INTO_TENSOR_COALESCED:
      return CollectiveOp::all_gather_into_tensor_coalesced;
    case REDUCE_SCATTER_BASE:
      return CollectiveOp::reduce_scatter_tensor;
    case REDUCE_SCATTER_TENSOR_COALESCED:
      return CollectiveOp::reduce_scatter_tensor_coalesced;
    case ALLTOALL_BASE:
      return CollectiveOp::all_to_all_single;
#endif
    default:
      return std::nullopt;
  }
}

/// Whether all ranks have equal tensors. In some operations only the root has them, or sizes may differ between ranks.
bool has_equal_inputs(CollectiveOp op) {
  return op != CollectiveOp::scatter && op != CollectiveOp::all_to_all && op != CollectiveOp::all_to_all_single;
}

/// Returns what has to be alike on all ranks. NCCL gathers inputs of different sizes, too; the outputs are alike then.
const std::vector<at::Tensor>& equal_tensors(CollectiveOp op, const c10d::PreHookArgs& call) {
  const auto& outputs = call.output_tensors;
  const bool uneven = op == CollectiveOp::all_gather && std::ranges::any_of(outputs, [&](const at::Tensor& each) {
                        return each.defined() && outputs.front().defined() && each.sizes() != outputs.front().sizes();
                      });
  return uneven ? outputs : call.input_tensors;
}

class HookedGroup {
 public:
  HookedGroup(dist::WatchedGroup::Identity identity, int64_t generation, int global_rank, const JobLog& log, bool check)
      : global_rank_(global_rank),
        generation_(generation),
        checks_(check),
        group_(std::make_shared<dist::WatchedGroup>(std::move(identity), log.log, log.watch, log.abort, check)) {
    group_->connected({}, 0, generation_);
  }

  void before(const c10d::PreHookArgs& call) {
    const auto op = op_of(call.name);
    if (!op) return;
    if (checks_) look_for_peers();
    dist::EntryFields fields;
    fields.op = *op;
    const dist::Caller caller = find_python_caller();
    fields.flags = dist::log_layout::kNamedSite | (caller.is_c10d ? dist::log_layout::kThroughC10d : 0) |
                   (call.async_op ? dist::log_layout::kAsync : 0);
    if (call.root >= 0 && static_cast<size_t>(call.root) < group_->identity().ranks.size())
      fields.root = group_->global_rank(static_cast<int>(call.root));
    fields.call_site = caller.site;
    uint64_t hash = dist::mix(static_cast<uint64_t>(*op) << 16, static_cast<uint64_t>(fields.root) + 2);
    if (has_equal_inputs(*op)) {
      fields.tensor_count = static_cast<int>(call.input_tensors.size());
      for (const at::Tensor& tensor : call.input_tensors) {
        if (!tensor.defined()) continue;
        if (fields.dtype == 255) {
          fields.dtype = static_cast<uint8_t>(tensor.scalar_type());
          fields.shape = tensor.sizes().data();
          fields.dimensions = tensor.sizes().size();
        }
        fields.bytes += static_cast<int64_t>(tensor.numel()) * static_cast<int64_t>(tensor.element_size());
      }
      for (const at::Tensor& tensor : equal_tensors(*op, call)) {
        if (!tensor.defined()) continue;
        hash = dist::mix(hash, static_cast<uint64_t>(tensor.scalar_type()) << 32 | tensor.sizes().size());
        for (const int64_t size : tensor.sizes()) hash = dist::mix(hash, static_cast<uint64_t>(size));
      }
    }
    fields.signature = dist::mix(hash, static_cast<uint64_t>(fields.tensor_count));
    if (!call.input_tensors.empty() && call.input_tensors.front().defined() &&
        !call.input_tensors.front().device().is_cpu())
      fields.flags |= dist::log_layout::kOnDevice;
    const std::lock_guard lock(mutex_);
    if (!group_->live()) return;  // the rank has raised what differs, and its program goes on
    end_rejected();
    open_[call.op_id] = {.entered = group_->enter(fields),
                         .on_device = (fields.flags & dist::log_layout::kOnDevice) != 0,
                         .thread = std::this_thread::get_id()};
  }

  void close() {
    const std::lock_guard lock(mutex_);
    group_->close();
  }

  void after(const c10d::PostHookArgs& call) {
    const Open open = take(call.op_id);
    const dist::Entered entered = open.entered;
    if (entered.seq == 0) return;
    const auto done = [group = group_, entered = entered](bool failed) {
      group->finish(entered, failed ? dist::log_layout::EntryState::failed : dist::log_layout::EntryState::done);
    };
    if (!call.work) return done(false);  // part of a coalesced call, or the caller has waited
    if (open.on_device) {
      group_->track({entered}, call.work);
      return;
    }
    try {
      call.work->getFuture()->addCallback([done](c10::ivalue::Future& future) { done(future.hasError()); },
                                          /*uses_future=*/false);
    } catch (const std::exception&) {  // a work without a future: its end is not known
      done(false);
    }
  }

 private:
  struct Open {
    dist::Entered entered{};
    bool on_device = false;
    std::thread::id thread;
  };

  /// A call that the transport has rejected with an exception has no second hook: this thread is past it.
  void end_rejected() {
    std::erase_if(open_, [&](const auto& each) {
      if (each.second.thread != std::this_thread::get_id()) return false;
      group_->finish(each.second.entered, dist::log_layout::EntryState::failed);
      return true;
    });
  }

  Open take(int64_t op_id) {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(op_id);
    if (found == open_.end()) return {};
    const Open open = found->second;
    open_.erase(found);
    return open;
  }

  /// Looks for the logs of the other ranks of this machine: they lie beside this rank's, and have a group of this name
  /// as soon as they have made it.
  void look_for_peers() {
    const std::lock_guard lock(mutex_);
    const auto& ranks = group_->identity().ranks;
    if (members_.size() + 1 >= ranks.size() || looks_ >= kLooks || !group_->live()) return;
    ++looks_;
    const size_t before = members_.size();
    for (size_t i = 0; i < ranks.size(); ++i) {
      const bool known =
          std::ranges::any_of(members_, [&](const auto& each) { return each.group_rank == static_cast<int>(i); });
      if (ranks[i] == global_rank_ || known) continue;
      if (auto member = find_member(ranks[i], static_cast<int>(i))) members_.push_back(std::move(*member));
    }
    if (members_.size() > before) group_->connected(members_, group_->seq(), generation_);
  }

  std::optional<dist::PeerInGroup> find_member(int rank, int group_rank) const {
    const std::string path = protocol::rank_log(agent::job_folder(), rank);
    if (::access(path.c_str(), R_OK) != 0) return std::nullopt;
    try {
      auto log = std::make_shared<const dist::LogMapping>(dist::LogMapping::open(path));
      const auto& header = log->header();
      dist::Peer peer{.rank = rank,
                      .same_machine = true,
                      .pid = static_cast<pid_t>(header.pid),
                      .process_start = header.process_start};
      if (!peer.alive()) return std::nullopt;  // of an earlier attempt
      for (uint32_t slot = 0; slot < header.group_count.load(); ++slot) {
        if (!is_same_group(log->group(slot))) continue;
        peer.log = log;
        return dist::PeerInGroup{.peer = std::move(peer), .group_rank = group_rank, .slot = slot};
      }
    } catch (const dist::Error&) {  // it is just being made
    }
    return std::nullopt;
  }

  /// `theirs` is in another rank's log. A program may destroy a group and make it again under its name, while
  /// something, such as a model, still holds the old one.
  bool is_same_group(const dist::log_layout::Group& theirs) const {
    const auto& mine = group_->identity();
    return theirs.state.load() == dist::log_layout::GroupState::live && theirs.generation == generation_ &&
           theirs.size == static_cast<int32_t>(mine.ranks.size()) &&
           mine.name.compare(0, sizeof theirs.name - 1, theirs.name) == 0 &&
           std::ranges::equal(theirs.named_ranks(), mine.ranks | std::views::take(theirs.named()));
  }

  const int global_rank_;
  const int64_t generation_;  // how often the program has made this group, equal on all of its ranks
  const bool checks_;
  const std::shared_ptr<dist::WatchedGroup> group_;
  std::mutex mutex_;
  std::map<int64_t, Open> open_;  // op_id → the call, between the hooks
  std::vector<dist::PeerInGroup> members_;
  int looks_ = 0;
};

/// Holds the groups that the program has made. Never destroyed: threads of c10d may outlive it.
struct Made {
  std::mutex mutex;
  std::map<std::pair<std::string, std::vector<int>>, int64_t> generations;  // name and ranks → how often
  std::map<std::string, std::weak_ptr<HookedGroup>> newest;  // by name
};
Made& made() {
  static auto* all = new Made;
  return *all;
}

}  // namespace

json hook_group(const Call& call) {
  const json& arguments = call.arguments;
  if (agent::job_folder().empty()) throw dist::Error("this rank has no agent, and so no folder for its log");
  const auto group = c10d::resolve_process_group(arguments.at("group").get<std::string>());
  const int global_rank = arguments.at("global_rank");
  const JobLog log = use_job_log(global_rank, arguments.at("world_size"));
  dist::WatchedGroup::Identity identity{.name = arguments.at("group"),
                                        .number = 0,
                                        .ranks = arguments.at("ranks").get<std::vector<int>>(),
                                        .group_rank = arguments.at("rank"),
                                        .backend = dist::BackendConfig("gloo"),
                                        .timeout = duration_of(arguments.at("timeout")),
                                        .advice = "The job has to end, or to make its process groups anew"};
  Made& all = made();
  const std::lock_guard lock(all.mutex);
  std::weak_ptr<HookedGroup>& newest = all.newest[identity.name];
  if (const auto before = newest.lock()) before->close();  // destroyed, and held by something
  const int64_t generation = ++all.generations[{identity.name, identity.ranks}];
  const auto hooked =
      std::make_shared<HookedGroup>(std::move(identity), generation, global_rank, log, arguments.at("check"));
  newest = hooked;
  group->registerPreHook(kHookId, [hooked](const c10d::PreHookArgs& args) { hooked->before(args); });
  group->registerPostHook(kHookId, [hooked](const c10d::PostHookArgs& args) { hooked->after(args); });
  return json::object();
}

#else

json hook_group(const Call&) { throw dist::Error("this version of torch has no hooks of process groups"); }

#endif

}  // namespace lockstep::python
