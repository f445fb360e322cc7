#include "protocol/runtime_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "protocol/error.h"
#include "protocol/user_folders.h"

namespace lockstep::protocol {

namespace fs = std::filesystem;

namespace {

/// Returns $XDG_RUNTIME_DIR/lockstep; empty where there is no such folder that this user may write to (a container), or
/// that belongs to another user (sudo).
std::string named_runtime_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (!runtime || *runtime != '/' || ::access(runtime, W_OK) != 0) return "";
  return writable_by_others(runtime).empty() ? std::string(runtime) + "/lockstep" : "";
}

std::string temporary_prefix() { return "/tmp/lockstep-" + std::to_string(::geteuid()) + "-"; }

/// Returns those in /tmp, where any user can make a folder of any name; they are known by their owner.
std::vector<std::string> temporary_runtime_directories() {
  const fs::path prefix = temporary_prefix();
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(prefix.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.size() == prefix.filename().string().size() + 6 && name.starts_with(prefix.filename().string()) &&
        private_folder_problem(entry->path()).empty())
      found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string private_folder_problem(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) return path + " can't be looked at: " + std::strerror(errno);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) return path + " is not a folder of yours";
  if ((status.st_mode & 077) != 0 && ::chmod(path.c_str(), 0700) != 0)
    return path + " is open to other users and could not be closed: " + std::strerror(errno);
  return writable_by_others(path);
}

std::vector<std::string> runtime_directories() {
  std::vector<std::string> all = temporary_runtime_directories();
  const std::string named = named_runtime_directory();
  if (!named.empty() && ::access(named.c_str(), F_OK) == 0 && private_folder_problem(named).empty())
    all.insert(all.begin(), named);
  return all;
}

std::string runtime_directory() {
  if (const std::string path = named_runtime_directory(); !path.empty()) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      throw StartError("the folder " + path + " could not be made: " + std::strerror(errno) +
                       "; set XDG_RUNTIME_DIR to a folder that you can write to");
    if (const std::string problem = private_folder_problem(path); !problem.empty())
      throw StartError(problem + ": remove " + path + ", or set XDG_RUNTIME_DIR to another folder of yours");
    return path;
  }
  if (auto found = temporary_runtime_directories(); !found.empty()) return found.front();
  std::string path = temporary_prefix() + "XXXXXX";
  if (!::mkdtemp(path.data()))
    throw StartError("no folder for sessions could be made in /tmp: " + std::string(std::strerror(errno)) +
                     "; set XDG_RUNTIME_DIR to a folder of yours");
  return path;
}

}  // namespace lockstep::protocol
