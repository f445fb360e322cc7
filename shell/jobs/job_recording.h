// What `lockstep run --record K` keeps of a job: the ranks write it to the job's folder while they run
// (collectives/record/rank_files.h), and it becomes one file when the job has failed, or was asked for.
#pragma once
#include <string>

namespace lockstep::shell {

struct RecordOptions {
  int steps = 0;  // that each rank keeps; 0: nothing is recorded
  std::string path;  // the file; empty: one is made after a failure only, in the current folder
};

/// Looks, before the job runs, whether its recording could be written. Throws UsageError.
void check_recording(const RecordOptions& options);

/// Writes the recording of the ranks of this machine that `folder` has, and says so, or why there is none.
void keep_recording(const RecordOptions& options, const std::string& folder, int world_size, bool has_failed);

}  // namespace lockstep::shell
