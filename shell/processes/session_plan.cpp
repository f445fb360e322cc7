#include "shell/processes/session_plan.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>

#include "protocol/error.h"
#include "shell/processes/gpus.h"

namespace lockstep::shell {
namespace {

// A worker with LibTorch loaded and nothing run: measured on CPU, see docs/performance.md.
constexpr int64_t kWorkerMemoryMb = 120;
// Of the shell, per rank: pidfd, pipe, connection; and what the shell has open itself.
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

/// A whole number in a LOCKSTEP_* variable, if it is set.
std::optional<int> variable(const char* name, int least) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  const std::string_view value = text;
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < least)
    throw UsageError(std::string(name) + " is '" + text + "': it has to be a whole number of at least " +
                     std::to_string(least) + "; correct it or unset it");
  return number;
}

/// Its ranks compute nothing: the devices are those of another machine.
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
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string part = list.substr(begin, end - begin);
    int id = -1;
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (part.empty() || error != std::errc() || rest != part.data() + part.size() || id < 0)
      throw UsageError("--gpu-ids " + list + ": '" + part +
                       "' is no GPU id; ids are numbers from 0, separated by commas, as 0,1");
    if (!seen.insert(id).second)
      throw UsageError("--gpu-ids " + list + ": GPU " + part + " is named twice, and each rank needs one of its own");
    ids.push_back(id);
    begin = end + 1;
  }
  return ids;
}

SessionPlan plan_session(const SessionOptions& options) {
  static const std::set<std::string> kBackends = {"auto", "gloo", "nccl"};
  if (!kBackends.contains(options.backend))
    throw UsageError("--backend " + options.backend + ": it is one of auto, gloo and nccl");
  const auto threads = variable("LOCKSTEP_THREADS", 1);
  if (options.rehearsal) return plan_rehearsal(options);
  if (options.num_processes) check_size(*options.num_processes);

  const std::string no_gpu = no_gpu_reason();
  const int gpus = visible_gpus();
  if (options.backend == "nccl" && !no_gpu.empty()) throw UsageError("--backend nccl: " + no_gpu);
  for (int id : options.gpu_ids) {
    if (!no_gpu.empty()) throw UsageError("GPU " + std::to_string(id) + ": " + no_gpu);
    if (id >= gpus)
      throw UsageError("GPU " + std::to_string(id) + " does not exist: this machine has " +
                       (gpus == 1 ? "GPU 0" : "GPUs 0-" + std::to_string(gpus - 1)));
  }

  SessionPlan plan;
  const bool on_gpu = no_gpu.empty();
  plan.world_size = options.num_processes.value_or(!options.gpu_ids.empty() ? static_cast<int>(options.gpu_ids.size())
                                                   : on_gpu                 ? gpus
                                                                            : 2);
  if (!options.gpu_ids.empty() && static_cast<int>(options.gpu_ids.size()) != plan.world_size)
    throw UsageError("-n " + std::to_string(plan.world_size) + " with " + std::to_string(options.gpu_ids.size()) +
                     " GPU ids: each rank needs one GPU; leave -n out, or name as many ids");
  if (on_gpu && options.gpu_ids.empty() && plan.world_size > gpus)
    throw UsageError("-n " + std::to_string(plan.world_size) + ": this machine has " + std::to_string(gpus) +
                     " GPUs, and each rank needs one");
  for (int rank = 0; rank < plan.world_size; ++rank)
    plan.devices.push_back(
        on_gpu ? "cuda:" + std::to_string(options.gpu_ids.empty() ? rank : options.gpu_ids[static_cast<size_t>(rank)])
               : "cpu");
  plan.backend = options.backend != "auto" ? options.backend : on_gpu ? "nccl" : "gloo";
  plan.threads = threads.value_or(std::max(1, cores() / plan.world_size));
  return plan;
}

}  // namespace lockstep::shell
