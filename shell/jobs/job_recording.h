// Writes what ranks have recorded (collectives/record/rank_files.h) into one file, for `lockstep replay`: that of a Python
// job of `lockstep run --record K`, or of a session.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "collectives/record/recording.h"
#include "shell/processes/session_options.h"

namespace lockstep::shell {

/// Looks, before ranks run, whether their recording could be written. Throws UsageError.
void check_recording(const RecordOptions& options);

/// Writes what the ranks of this machine have left in `folder`, and returns a sentence that says so; an empty one where they
/// have left nothing. `session`: as write_recording(). Throws dist::Error.
std::string save_recording(const std::string& path, const std::string& folder, int world_size,
                           const nlohmann::json& session = nullptr);

using dist::is_recording;

/// Does that for a job that has ended, if it is to be, and says so, or why there is none.
void keep_recording(const RecordOptions& options, const std::string& folder, int world_size, bool has_failed);

}  // namespace lockstep::shell
