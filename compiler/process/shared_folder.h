// A folder of files that takes long to build and that all sessions of a user share.
//
//   PARENT/NAME/          the files, and `inventory`: size, time and digest of each
//   PARENT/NAME.draft/    while it is built: files that are finished have their names. A builder that is killed leaves
//                         it, and the next one goes on with the first file that is missing.
//   PARENT/NAME.lock      held by the builder, whose pid it contains; the lock ends with its holder
//
// A folder appears under its name only when all of it is there. Nothing is used that another user could have written.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::compiler {

struct BuildStep {
  std::string file;                                        // its name in the folder
  std::function<void(const std::filesystem::path&)> build;  // writes it to this path; throws StartError
};

struct SharedFolder {
  std::filesystem::path path;    // PARENT/NAME
  std::string what;              // for messages: "the precompiled header"
  std::string advice;            // how to name another place: "set XDG_CACHE_HOME to …"
  std::uintmax_t space = 0;      // bytes that building needs
  std::vector<BuildStep> steps;  // in order; a step may read the files of those before it from its own folder
};

/// Does the folder hold what was put into it? Judged by sizes and times.
bool is_whole(const std::filesystem::path& folder);

/// Compares the files with the digests of when they were built; where they differ, the folder is built again the next
/// time. Returns whether they did.
bool discard_if_damaged(const std::filesystem::path& folder);

/// Builds the folder if it is not whole. Where another process is at it, waits for that one and says so. `progress` is
/// given sentences for the user; `building` is said before the first step. Throws StartError: the folder can't be
/// written to, there is no space, another user could have written it, a step failed.
void provide(const SharedFolder& folder, const std::string& building,
             const std::function<void(const std::string&)>& progress);

}  // namespace lockstep::compiler
