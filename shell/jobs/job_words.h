// What the ranks of a running job do, for people.
#pragma once
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "shell/jobs/job_folder.h"

namespace lockstep::shell {

/// Of each rank that answers within `limit`: "is in a collective, at train.py, line 31, in step".
std::map<int, std::string> activities_of(const std::vector<JobMember>& ranks, std::chrono::milliseconds limit);

/// The stacks of each rank: Python's of the main thread, innermost first, and below them the native one; or why there
/// is none.
std::map<int, std::string> stacks_of(const std::vector<JobMember>& ranks, std::chrono::milliseconds limit);

}  // namespace lockstep::shell
