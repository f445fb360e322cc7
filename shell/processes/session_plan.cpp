#include "shell/processes/session_plan.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>

#include "collectives/log/collective_log_layout.h"
#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/text.h"
#include "protocol/whole_number.h"
#include "shell/processes/gpus.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

// A worker with LibTorch loaded and nothing run takes so much: measured on CPU, see docs/performance.md.
constexpr int64_t kWorkerMemoryMb = 120;
// The shell has so many per rank (pidfd, pipe, connection), and so many of its own.
constexpr int64_t kDescriptorsPerRank = 4, kDescriptorsOwn = 64;

int cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

std::optional<int64_t> available_memory_mb() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kb = 0;
  while (file >> name >> kb) {
    if (name == "MemAvailable:") return kb / 1024;
    file.ignore(64, '\n');
  }
  return std::nullopt;
}

/// Raises the limit on descriptors as far as it may be raised, and returns it.
int64_t descriptor_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  return limit.rlim_cur == RLIM_INFINITY ? INT32_MAX : static_cast<int64_t>(limit.rlim_cur);
}

void check_size(int n) {
  const std::string number = std::to_string(n);
  if (n < 1) throw UsageError("-n " + number + ": a session has at least one rank");
  if (const auto memory = available_memory_mb(); memory && n * kWorkerMemoryMb > *memory)
    throw UsageError("-n " + number + ": " + number + " ranks need at least " +
                     std::to_string(n * kWorkerMemoryMb / 1024) + " GB of memory, and " +
                     std::to_string(*memory / 1024) + " GB are free: at most " +
                     std::to_string(*memory / kWorkerMemoryMb) + " ranks fit here");
  const int64_t limit = descriptor_limit();
  if (n * kDescriptorsPerRank + kDescriptorsOwn > limit)
    throw UsageError("-n " + number + ": a session of that size needs " +
                     std::to_string(n * kDescriptorsPerRank + kDescriptorsOwn) + " open files, and the limit is " +
                     std::to_string(limit) + ": raise it (ulimit -n), or start fewer ranks");
}

/// Returns a whole number in a LOCKSTEP_* variable, if it is set.
std::optional<int> variable(const char* name, int least) {
  const std::string text = protocol::variable(name);
  if (text.empty()) return std::nullopt;
  const auto number = protocol::whole_number<int>(text, least);
  if (!number)
    throw UsageError(std::string(name) + " is '" + text + "': it has to be a whole number of at least " +
                     std::to_string(least) + "; correct it or unset it");
  return number;
}

/// Of ranks that compute nothing, or on other machines: what is there is not looked at.
SessionPlan plan_rehearsal(const SessionOptions& options) {
  SessionPlan plan;
  plan.world_size =
      options.num_processes.value_or(options.gpu_ids.empty() ? 2 : static_cast<int>(options.gpu_ids.size()));
  if (plan.world_size < 1)
    throw UsageError("-n " + std::to_string(plan.world_size) + ": a session has at least one rank");
  plan.devices.assign(static_cast<size_t>(plan.world_size), "cpu");
  plan.backend = "gloo";
  return plan;
}

}  // namespace

std::vector<int> parse_gpu_ids(const std::string& list) {
  std::vector<int> ids;
  std::set<int> seen;
  for (const std::string& part : protocol::split(list, ',')) {
    const auto id = protocol::whole_number<int>(part, 0);
    if (!id)
      throw UsageError("--gpu-ids " + list + ": '" + part +
                       "' is no GPU id; ids are numbers from 0, separated by commas, as 0,1");
    if (!seen.insert(*id).second)
      throw UsageError("--gpu-ids " + list + ": GPU " + part + " is named twice, and each rank needs one of its own");
    ids.push_back(*id);
  }
  return ids;
}

std::optional<std::chrono::milliseconds> fold_time() {
  const auto chosen = variable("LOCKSTEP_FOLD_TIME", 1);
  return chosen ? std::optional(std::chrono::milliseconds(*chosen)) : std::nullopt;
}

SessionPlan plan_session(const SessionOptions& options) {
  return plan_session(options, options.rehearsal ? Gpus{} : find_gpus());
}

namespace {

std::string count_text(int gpus) { return gpus == 1 ? "1 GPU is" : std::to_string(gpus) + " GPUs are"; }

/// Returns what a user has asked of GPUs, which has to be there.
std::string wish_for_gpus(const SessionOptions& options) {
  if (!options.gpu_ids.empty()) return "GPU " + std::to_string(options.gpu_ids.front());
  if (options.share_gpu) return "--share-gpu";
  if (options.all_gpus_visible) return "--all-gpus-visible";
  return options.backend.ends_with("nccl") ? "--backend " + options.backend : "";
}

constexpr int kMostSharing = dist::log_layout::kMostSharingRanks;

std::string backend_on_cpu(const SessionOptions& options, int world_size) {
  if (options.backend != "auto") return options.backend == kSharedMemory ? kSharedMemory : "gloo";
  const char* const text = std::getenv("LOCKSTEP_BACKEND");  // of the backend `lockstep`, as in every Python job
  const std::string wish = text && options.has_python_ranks() ? text : "";
  const bool leaves_it = wish == "gloo";
  // A session that a cell has started inherits that of its own session, which may be on GPUs.
  if (!leaves_it && !wish.empty() && wish != "auto" && wish != kSharedMemory && !wish.ends_with("nccl"))
    throw UsageError("LOCKSTEP_BACKEND is '" + wish + "'; it has to be auto, gloo or shared_memory");
  return world_size > 1 && world_size <= kMostSharing && !leaves_it ? kSharedMemory : "gloo";
}

/// Returns, per rank, an index into the visible GPUs.
std::vector<int> choose_gpus(const SessionOptions& options, const Gpus& gpus, int world_size) {
  std::vector<int> usable = options.gpu_ids;
  for (int gpu = 0; options.gpu_ids.empty() && gpu < gpus.count(); ++gpu) usable.push_back(gpu);
  const int count = static_cast<int>(usable.size());
  if (!options.share_gpu) {
    if (!options.gpu_ids.empty() && count != world_size)
      throw UsageError(
          "-n " + std::to_string(world_size) + " with " + std::to_string(count) +
          " GPU ids: each rank needs one GPU; leave -n out, name as many ids, or let ranks share GPUs over "
          "Gloo (--share-gpu)");
    if (world_size > count)
      throw UsageError("-n " + std::to_string(world_size) + ": " + count_text(count) +
                       " visible, and each rank needs one: start fewer ranks, let ranks share GPUs over Gloo "
                       "(--share-gpu), or hide the GPUs to run on the CPU (CUDA_VISIBLE_DEVICES= lockstep)");
  }
  std::vector<int> chosen;
  for (int rank = 0; rank < world_size; ++rank) chosen.push_back(usable[static_cast<size_t>(rank % count)]);
  return chosen;
}

}  // namespace

void check_backend(const std::string& name) {
  static const std::vector<std::string> kBackends = {"auto", "gloo", kSharedMemory, "nccl", "cpu:gloo,cuda:nccl"};
  if (std::find(kBackends.begin(), kBackends.end(), name) == kBackends.end())
    throw UsageError("--backend " + name + ": it is one of auto, gloo, shared_memory, nccl and cpu:gloo,cuda:nccl" +
                     did_you_mean(name, kBackends));
}

SessionPlan plan_session(const SessionOptions& options, const Gpus& gpus) {
  check_backend(options.backend);
  const auto threads = variable("LOCKSTEP_THREADS", 1);
  (void)fold_time();  // a wrong one is found before anything starts
  if (options.backend == kSharedMemory && !options.is_here())
    throw UsageError("--backend shared_memory: ranks on several machines use Gloo. Leave it out");
  if (options.rehearsal) return plan_rehearsal(options);
  if (!options.is_here()) {  // other machines look at what they have
    (void)descriptor_limit();
    return plan_rehearsal(options);
  }
  if (options.num_processes) check_size(*options.num_processes);

  if (!gpus.problem.empty()) {
    if (const std::string wish = wish_for_gpus(options); !wish.empty()) throw UsageError(wish + ": " + gpus.problem);
    if (gpus.refuses) throw UsageError(gpus.problem);
  }
  const bool on_gpu = gpus.problem.empty() && gpus.count() > 0;
  for (const int id : options.gpu_ids)
    if (id >= gpus.count())
      throw UsageError("GPU " + std::to_string(id) + " does not exist: " + count_text(gpus.count()) + " visible, " +
                       (gpus.count() == 1 ? "GPU 0" : "GPUs 0-" + std::to_string(gpus.count() - 1)));

  if (options.backend == kSharedMemory && on_gpu)
    throw UsageError(
        "--backend shared_memory: it is for tensors of the CPU. Hide the GPUs to run on the CPU "
        "(CUDA_VISIBLE_DEVICES= lockstep)");

  SessionPlan plan;
  const int asked = options.gpu_ids.empty() ? gpus.count() : static_cast<int>(options.gpu_ids.size());
  plan.world_size = options.num_processes.value_or(!on_gpu ? 2 : options.share_gpu ? std::max(2, asked) : asked);
  if (on_gpu) plan.gpu_ids = choose_gpus(options, gpus, plan.world_size);
  for (int rank = 0; rank < plan.world_size; ++rank) {
    if (!on_gpu) {
      plan.devices.emplace_back("cpu");
      continue;
    }
    const int gpu = plan.gpu_ids[static_cast<size_t>(rank)];
    plan.devices.push_back("cuda:" + std::to_string(options.all_gpus_visible ? gpu : 0));
    if (!options.all_gpus_visible) plan.visible_devices.push_back(gpus.visible[static_cast<size_t>(gpu)]);
  }
  plan.backend = !on_gpu                                          ? backend_on_cpu(options, plan.world_size)
                 : options.share_gpu && options.backend == "auto" ? "gloo"
                                                                  : options.backend;
  if (plan.backend == kSharedMemory && plan.world_size > kMostSharing)
    throw UsageError("--backend shared_memory: it is for up to " + std::to_string(kMostSharing) + " ranks, not " +
                     std::to_string(plan.world_size) + ". Leave it out, and they use Gloo");
  plan.separate_hosts = options.share_gpu && plan.backend != "gloo";
  plan.threads = threads.value_or(std::max(1, cores() / plan.world_size));
  return plan;
}

std::map<std::string, std::string> device_environment(const SessionPlan& plan, int rank) {
  const auto index = static_cast<size_t>(rank);
  std::map<std::string, std::string> environment = {{"LOCKSTEP_DEVICE", plan.devices.at(index)}};
  if (!plan.gpu_ids.empty()) environment["LOCKSTEP_GPU_ID"] = std::to_string(plan.gpu_ids.at(index));
  if (!plan.visible_devices.empty()) environment["CUDA_VISIBLE_DEVICES"] = plan.visible_devices.at(index);
  // NCCL refuses two ranks of one host on one GPU. Ranks of different hosts may have GPUs of the same address.
  if (plan.separate_hosts) environment["NCCL_HOSTID"] = "lockstep-rank-" + std::to_string(rank);
  return environment;
}

}  // namespace lockstep::shell
