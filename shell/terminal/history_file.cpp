#include "shell/terminal/history_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "protocol/descriptor.h"
#include "protocol/read_json.h"
#include "protocol/user_folders.h"

namespace lockstep::shell {
namespace {

/// Is an open file under a lock, both given up at the end of the scope.
class LockedFile {
 public:
  LockedFile(const std::string& path, int flags, int lock) {
    // A link or a pipe of another user would lead cells elsewhere, or wait for ever.
    if (problem_ = protocol::writable_by_others(std::filesystem::absolute(path)); !problem_.empty()) return;
    fd_ = Descriptor(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600));
    struct stat status = {};
    if (!fd_ || ::fstat(fd_.get(), &status) != 0)
      problem_ = path + ": " + std::strerror(errno);
    else if (!S_ISREG(status.st_mode))
      problem_ = path + " is no regular file";
    if (!is_open()) return;
    uninterrupted([&] { return ::flock(fd_.get(), lock); });
  }

  bool is_open() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }

  std::string text() const { return read_to_end(fd_.get()); }
  bool write(std::string_view text) const { return write_all(fd_.get(), text); }
  bool clear() const { return ::ftruncate(fd_.get(), 0) == 0 && ::lseek(fd_.get(), 0, SEEK_SET) == 0; }

 private:
  Descriptor fd_;
  std::string problem_;
};

std::string line_of(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string default_history_path() {
  const auto folder = protocol::user_folder("XDG_STATE_HOME", ".local/state");
  return folder.empty() ? "" : folder / "lockstep/history";
}

std::vector<std::string> HistoryFile::load(size_t most) const {
  if (path_.empty()) return {};
  const LockedFile file(path_, O_RDWR, LOCK_EX);
  if (!file.is_open()) return {};
  std::vector<std::string> cells;
  std::istringstream stream(file.text());
  size_t lines = 0;
  for (std::string line; std::getline(stream, line); ++lines) {
    const nlohmann::json json = protocol::read_json(line);
    if (json.is_string()) cells.push_back(json.get<std::string>());
  }
  if (cells.size() > most) cells.erase(cells.begin(), cells.end() - static_cast<ptrdiff_t>(most));
  if (lines > 2 * most && file.clear()) {
    std::string text;
    for (const std::string& cell : cells) text += line_of(cell);
    file.write(text);
  }
  return cells;
}

std::string HistoryFile::add(const std::string& text) const {
  if (path_.empty()) return "there is no home";
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::path(path_).parent_path();
  if (fs::create_directories(folder, error)) fs::permissions(folder, fs::perms::owner_all, error);
  const LockedFile file(path_, O_WRONLY | O_APPEND | O_CREAT, LOCK_EX);
  if (!file.is_open()) return file.problem();
  return file.write(line_of(text)) ? "" : path_ + ": " + std::strerror(errno);
}

}  // namespace lockstep::shell
