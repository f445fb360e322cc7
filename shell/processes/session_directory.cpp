#include "shell/processes/session_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "protocol/user_folders.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

// sockaddr_un holds 107 characters and a zero.
constexpr size_t kLongestSocketPath = 107;

void make_folder(const std::string& path, const std::string& fix) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return;
  throw StartError("the folder " + path + " could not be made: " + std::strerror(errno) + fix);
}

/// Why `path` is no private folder of this user; empty when it is one. One that others can only read is closed.
std::string problem_of(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) return path + " can't be looked at: " + std::strerror(errno);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) return path + " is not a folder of yours";
  if ((status.st_mode & 077) != 0 && ::chmod(path.c_str(), 0700) != 0)
    return path + " is open to other users and could not be closed: " + std::strerror(errno);
  return protocol::writable_by_others(path);
}

/// $XDG_RUNTIME_DIR/lockstep; empty where there is no such folder that this user may write to (a container), or that
/// belongs to another user (sudo).
std::string named_runtime_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (!runtime || *runtime != '/' || ::access(runtime, W_OK) != 0) return "";
  return protocol::writable_by_others(runtime).empty() ? std::string(runtime) + "/lockstep" : "";
}

std::string temporary_prefix() { return "/tmp/lockstep-" + std::to_string(::geteuid()) + "-"; }

/// In /tmp, where any user can make a folder of any name: known by their owner.
std::vector<std::string> temporary_runtime_directories() {
  const fs::path prefix = temporary_prefix();
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(prefix.parent_path(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.size() == prefix.filename().string().size() + 6 && name.starts_with(prefix.filename().string()) &&
        problem_of(entry->path()).empty())
      found.push_back(entry->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string random_hex() {
  std::random_device device;
  char text[9];
  std::snprintf(text, sizeof text, "%08x", device());
  return text;
}

}  // namespace

std::vector<std::string> runtime_directories() {
  std::vector<std::string> all = temporary_runtime_directories();
  const std::string named = named_runtime_directory();
  if (!named.empty() && ::access(named.c_str(), F_OK) == 0 && problem_of(named).empty()) all.insert(all.begin(), named);
  return all;
}

std::string runtime_directory() {
  if (const std::string path = named_runtime_directory(); !path.empty()) {
    make_folder(path, "; set XDG_RUNTIME_DIR to a folder that you can write to");
    if (const std::string problem = problem_of(path); !problem.empty())
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

std::string working_directory() {
  std::error_code error;
  const fs::path path = fs::current_path(error);
  if (error)
    throw StartError("the working directory can't be read (" + error.message() +
                     "), and ranks and compiler would start in it: has it been removed? cd to another one");
  return path.string();
}

SessionDirectory::SessionDirectory() {
  id_ = std::to_string(::getpid()) + "-" + random_hex();
  path_ = runtime_directory() + "/" + id_;
  if (path_.size() + std::strlen("/hub") > kLongestSocketPath)
    throw StartError("the path of the session's socket is too long (" + path_ +
                     "/hub): set XDG_RUNTIME_DIR to a shorter one");
  if (::mkdir(path_.c_str(), 0700) != 0)
    throw StartError("the session's folder " + path_ + " could not be made: " + std::strerror(errno) +
                     "; make room there, or set XDG_RUNTIME_DIR to another folder");
  try {
    make_folder(path_ + "/cells", "");
  } catch (...) {  // the destructor does not run for what is half made
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    throw;
  }
}

SessionDirectory::~SessionDirectory() {
  std::error_code ignored;  // what can't be removed is named by `lockstep sessions`
  fs::remove_all(path_, ignored);
}

void SessionDirectory::add_rank(int rank) { make_folder(path_ + "/rank-" + std::to_string(rank), "; make room there"); }

void SessionDirectory::describe(nlohmann::json description) {
  description["id"] = id_;
  description["pid"] = ::getpid();
  description["start_time"] = dist::process_start_time(::getpid()).value_or(0);
  const std::string text = description.dump(2) + "\n", final_path = path_ + "/session.json",
                    fresh = final_path + ".new";
  {
    std::ofstream file(fresh, std::ios::binary);
    file << text;
    file.close();
    if (!file)
      throw StartError(fresh + " could not be written: " + std::strerror(errno) +
                       "; make room there, or set XDG_RUNTIME_DIR");
  }
  fs::rename(fresh, final_path);
}

void SessionDirectory::write_cell(int64_t number, const std::string& source) {
  std::ofstream file(path_ + "/cells/cell_" + std::to_string(number) + ".cpp", std::ios::binary);
  file << source;
}

}  // namespace lockstep::shell
