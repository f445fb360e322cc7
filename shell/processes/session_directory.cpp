#include "shell/processes/session_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/runtime_folder.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

void make_folder(const std::string& path, const std::string& fix) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return;
  throw StartError("the folder " + path + " could not be made: " + std::strerror(errno) + fix);
}

}  // namespace

std::string working_directory() {
  std::error_code error;
  const fs::path path = fs::current_path(error);
  if (error)
    throw StartError("the working directory can't be read (" + error.message() +
                     "), and ranks and compiler would start in it: has it been removed? cd to another one");
  return path.string();
}

std::string new_session_id() { return std::to_string(::getpid()) + "-" + random_key().substr(0, 8); }

SessionDirectory::SessionDirectory(std::string id) : id_(std::move(id)) {
  path_ = protocol::runtime_directory() + "/" + id_;
  if (path_.size() + std::strlen("/hub") > protocol::kLongestSocketPath)
    throw StartError("the path of the session's socket is too long (" + path_ +
                     "/hub): set XDG_RUNTIME_DIR to a shorter one");
  std::error_code ignored;
  fs::remove_all(path_, ignored);  // what an earlier start of this session could not remove
  if (::mkdir(path_.c_str(), 0700) != 0)
    throw StartError("the session's folder " + path_ + " could not be made: " + std::strerror(errno) +
                     "; make room there, or set XDG_RUNTIME_DIR to another folder");
  try {
    make_folder(path_ + "/cells", "");
  } catch (...) {  // the destructor does not run for what is half made
    fs::remove_all(path_, ignored);
    throw;
  }
}

SessionDirectory::~SessionDirectory() {
  std::error_code ignored;  // what can't be removed is named by `lockstep sessions`
  fs::remove_all(path_, ignored);
}

void SessionDirectory::add_rank(int rank) { make_folder(path_ + "/rank-" + std::to_string(rank), "; make room there"); }

void SessionDirectory::set_rank_aside(int rank) {
  std::error_code ignored;  // where the folder can't be renamed, the new process says what it can't write
  fs::remove(rank_log(rank), ignored);
  const std::string path = path_ + "/rank-" + std::to_string(rank);
  int number = 1;
  while (fs::exists(path + "." + std::to_string(number), ignored)) ++number;
  fs::rename(path, path + "." + std::to_string(number), ignored);
}

void SessionDirectory::describe(nlohmann::json description) {
  description["id"] = id_;
  description["pid"] = ::getpid();
  description["start_time"] = dist::process_start_time(::getpid()).value_or(0);
  const std::string path = path_ + "/session.json";
  if (const int error = protocol::replace_file(path, description.dump(2) + "\n", 0600))
    throw StartError(path + " could not be written: " + std::strerror(error) +
                     "; make room there, or set XDG_RUNTIME_DIR");
}

void SessionDirectory::write_cell(int64_t number, const std::string& source) {
  std::ofstream file(path_ + "/cells/cell_" + std::to_string(number) + ".cpp", std::ios::binary);
  file << source;
}

}  // namespace lockstep::shell
