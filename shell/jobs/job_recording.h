// Writes what the ranks of a session, or of a Python job of `lockstep run --record K`, have recorded
// (collectives/record/rank_files.h) into one file, for `lockstep replay`.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/record/recording.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

/// Checks, before ranks run, that their recording can be written. Throws UsageError.
void check_recording(const RecordOptions& options);

/// Writes what the ranks of this machine have left in `folder`, and returns a sentence that says so; empty where they
/// have left nothing. `session`: as write_recording(). Throws dist::Error.
std::string save_recording(const std::string& path, const std::string& folder, int world_size,
                           const nlohmann::json& session = nullptr);

using dist::is_recording;

/// Saves the recording of a job that has ended, if the options ask for one. Prints where it is, or why there is none.
void keep_recording(const RecordOptions& options, const std::string& folder, int world_size, bool has_failed);

}  // namespace lockstep::shell
