// Adds what torch and NCCL tell of a running job without the help of its program: dumps of the Flight Recorder that lie
// where the job has them written, new ones by its trigger pipe, error files of torchelastic, and NCCL's RAS.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "inspectors/remains/remains.h"
#include "shell/look/running_ranks.h"

namespace lockstep::shell {

/// Blocks for `limit` at most where ranks have a trigger pipe, and as long where NCCL answers. What can't be had, and how
/// it could, is added to `problems`.
void add_torch_evidence(const RunningJob& job, std::chrono::milliseconds limit, inspect::Remains& remains,
                        std::vector<std::string>& problems);

/// Whether the process is of this user.
bool is_own_process(int64_t pid);

}  // namespace lockstep::shell
