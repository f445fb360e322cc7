// What a session is going to be: how many ranks, on which devices, with which backend and how many threads. Worked out
// and checked before anything starts, so that what is wrong with the options costs nothing.
#pragma once
#include <string>
#include <vector>

#include "shell/processes/session_options.h"

namespace lockstep::shell {

struct SessionPlan {
  int world_size = 0;
  std::vector<std::string> devices;  // per rank: "cpu", "cuda:0"
  std::string backend;  // gloo, nccl
  int threads = 1;  // per rank, intra-op
};

/// Throws UsageError that names the option or the LOCKSTEP_* variable at fault and how to fix it.
SessionPlan plan_session(const SessionOptions& options);

/// "0,1,3" as GPU ids. Throws UsageError naming the part at fault.
std::vector<int> parse_gpu_ids(const std::string& list);

}  // namespace lockstep::shell
