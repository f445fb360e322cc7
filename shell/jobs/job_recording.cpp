#include "shell/jobs/job_recording.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "protocol/dist_error.h"
#include "protocol/error.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {

void check_recording(const RecordOptions& options) {
  if (options.steps == 0) return;
  const std::filesystem::path path = options.path;
  std::error_code unreachable;  // which access() names
  if (std::filesystem::is_directory(path, unreachable))
    throw UsageError(options.path + " is a folder: --recording names a file");
  // With a point at the end: a file that stands in the place of the folder is none.
  if (::access((path.parent_path() / ".").c_str(), W_OK | X_OK) != 0)
    throw UsageError(fmt::format("the recording can't be written into {}: {}",
                                 path.has_parent_path() ? path.parent_path().string() : "the current folder",
                                 std::strerror(errno)));
}

std::string save_recording(const std::string& path, const std::string& folder, int world_size,
                           const nlohmann::json& session) {
  const dist::WrittenRecording written = dist::write_recording(folder, world_size, path, session);
  if (written.ranks.empty()) return {};
  return fmt::format("{} of {} recorded in {} ({:.1f} MB). Run one again, alone: lockstep replay {} --rank {}{}",
                     written.ranks.words(), world_size, path, static_cast<double>(written.bytes) / 1e6, path,
                     written.ranks.ranks().front(), session.is_null() ? " -- python SCRIPT ARGUMENT…" : "");
}

void keep_recording(const RecordOptions& options, const std::string& folder, int world_size, bool has_failed) {
  if (options.steps == 0 || (options.path.empty() && !has_failed)) return;
  const std::string name = std::filesystem::path(folder).filename().string();
  const std::string path = options.path.empty() ? name + ".recording" : options.path;
  try {
    const std::string saved = save_recording(path, folder, world_size);
    write_message(!saved.empty() ? saved
                                 : "no rank of this machine was recorded: recorded are process groups with the backend "
                                   "\"lockstep\" (docs/replay.md)");
  } catch (const dist::Error& error) {
    write_message(error.what());
  }
}

}  // namespace lockstep::shell
