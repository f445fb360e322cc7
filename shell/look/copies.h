// Asks about processes in copies of this process. What the kernel is asked about a process (its environment, its
// memory, its registers) can keep the caller for ever where that process is stuck in a driver or a network file system.
// Then it keeps a copy, which is left alone, and the command goes on without the answer.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep::shell {

/// Calls `ask` once for each process, in several copies at a time, and returns the answers. A process has none where
/// `ask` has not returned after `limit`. This process has a single thread, and `ask` throws nothing.
std::map<int64_t, std::string> ask_in_copies(const std::vector<int64_t>& pids, std::chrono::milliseconds limit,
                                             const std::function<std::string(int64_t pid)>& ask);

}  // namespace lockstep::shell
