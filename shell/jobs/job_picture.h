// Collects what all ranks of a running job are doing, as judge() wants it (inspectors/remains): the collective log of
// each, or its Flight Recorder with Python frames, Python stacks, and what the main thread waits for.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "inspectors/remains/remains.h"
#include "shell/jobs/job_folder.h"

namespace lockstep::shell {

/// Asks all ranks that live, each request at most `limit`. The facts of a rank that does not answer are missing:
/// `unread` says why.
inspect::Remains picture_of(const std::vector<JobMember>& ranks, std::chrono::milliseconds limit);

/// Adds the default group's ranks, which the job has: a dump may describe none of Gloo's groups.
void complete_default_group(int world_size, inspect::Evidence& dump);

/// Adds the dumps that a rank which raised an exception has left in the job's folder.
void add_left_dumps(const std::string& folder, int rank, int world_size, inspect::Remains& remains);

/// Returns the frames of a rank's main thread that have lines, innermost first, from an answer to "stacks": Python's,
/// or those of a program in C++.
std::vector<inspect::EvidenceFrame> main_frames(int rank, const nlohmann::json& stacks);

/// Returns, from an answer to "stacks", what a rank does, in words and as a kind such as sleeping or lock.
inspect::RankDoing doing_of(int rank, const nlohmann::json& stacks, const std::vector<inspect::EvidenceFrame>& frames);

}  // namespace lockstep::shell
