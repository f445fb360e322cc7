// Plans a session: how many ranks, on which devices, with which backend and how many threads. The plan is worked out
// and checked before anything starts, so that what is wrong with the options costs nothing.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shell/processes/gpus.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

struct SessionPlan {
  int world_size = 0;
  std::vector<std::string> devices;  // per rank, as its process counts: "cpu", "cuda:0"
  std::vector<int> gpu_ids;  // per rank, as the user counts: among the visible GPUs; empty on the CPU
  std::vector<std::string> visible_devices;  // per rank: its CUDA_VISIBLE_DEVICES; empty: as the session's
  std::string backend;  // gloo, shared_memory, nccl, cpu:gloo,cuda:nccl; auto: the last for ranks on GPUs
  bool separate_hosts = false;  // NCCL takes each rank for a host, so that ranks can share a GPU
  int threads = 1;  // per rank, intra-op
};

/// Throws UsageError unless `name` is a backend that sessions take.
void check_backend(const std::string& name);

/// Throws UsageError that names the option or the LOCKSTEP_* variable at fault and how to fix it.
SessionPlan plan_session(const SessionOptions& options);
/// Does the same for a machine with these GPUs.
SessionPlan plan_session(const SessionOptions& options, const Gpus& gpus);

/// Returns how long output of a rank waits for equal output of the others, if LOCKSTEP_FOLD_TIME says it. Throws as
/// plan_session().
std::optional<std::chrono::milliseconds> fold_time();

/// Returns what the environment of a rank says about its device: LOCKSTEP_DEVICE, and on a GPU LOCKSTEP_GPU_ID and
/// CUDA_VISIBLE_DEVICES.
std::map<std::string, std::string> device_environment(const SessionPlan& plan, int rank);

/// Reads "0,1,3" as GPU ids. Throws UsageError naming the part at fault.
std::vector<int> parse_gpu_ids(const std::string& list);

}  // namespace lockstep::shell
