// A folder of files that takes long to build and that all sessions of a user share.
//
//   PARENT/NAME/          the files, and `inventory`: size, time and digest of each
//   PARENT/NAME.draft/    while it is built: finished files have their names. If a builder is killed, the next one
//                         continues with the first file that is missing.
//   PARENT/NAME.lock      held by the builder, whose pid it contains; the lock ends with its holder
//   PARENT/last-build     the machine of the last build, and the seconds that each of its steps took
//
// A folder gets its name when it is complete. Nothing is used that another user could have written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "protocol/compiler_messages.h"

namespace lockstep::compiler {

struct BuildStep {
  std::string file;                                        // its name in the folder
  std::function<void(const std::filesystem::path&)> build;  // writes it to this path; throws StartError
  std::string what = {};                                   // for people: "the headers of LibTorch"
};

struct SharedFolder {
  std::filesystem::path path;    // PARENT/NAME
  std::string what;              // for messages: "the precompiled header"
  std::string advice;            // how to choose another folder: "set XDG_CACHE_HOME to …"
  std::uintmax_t space = 0;      // bytes that building needs
  std::vector<BuildStep> steps;  // in order; a step may read the files of those before it from its own folder
};

/// Whether the folder contains all files as they were built, judged by sizes and times.
bool is_complete(const std::filesystem::path& folder);

/// Compares the files with their digests. If one differs, the folder is built again the next time. Returns whether one
/// differs.
bool discard_if_damaged(const std::filesystem::path& folder);

using ReportProgress = std::function<void(const protocol::CompilerProgress&)>;

/// Builds the folder if it is not complete. If another process is building it, waits for that process. `progress`
/// receives a sentence if it waits, and each step before it begins, the first with the sentence `building`. Throws
/// StartError: the folder can't be written to, there is no space, another user could have written it, a step failed.
void provide(const SharedFolder& folder, const std::string& building, const ReportProgress& progress);

}  // namespace lockstep::compiler
