// Describes what the ranks of a running job do, in words.
#pragma once
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "shell/jobs/job_folder.h"

namespace lockstep::shell {

/// Describes each rank that answers within `limit`: "is in a collective, at train.py, line 31, in step".
std::map<int, std::string> activities_of(const std::vector<JobMember>& ranks, std::chrono::milliseconds limit);

/// Writes equal texts once, each with its ranks, in the order of their lowest ranks: "ranks 0-1: waits". `between`
/// stands between ranks and text; each text ends a line.
std::string by_text(const std::map<int, std::string>& texts, const char* between);

/// Returns the stacks of each rank: Python's of the main thread, innermost first, and below them the native one; or why
/// there is none.
std::map<int, std::string> stacks_of(const std::vector<JobMember>& ranks, std::chrono::milliseconds limit);

}  // namespace lockstep::shell
