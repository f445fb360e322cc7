#include "compiler/process/shared_folder.h"

#include <fcntl.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/BLAKE3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "compiler/process/process.h"
#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/user_folders.h"

namespace lockstep::compiler {

namespace fs = std::filesystem;

namespace {

constexpr const char* kInventory = "inventory";
constexpr const char* kDraft = ".draft";
constexpr const char* kLock = ".lock";
constexpr const char* kLastBuild = "last-build";
constexpr auto kKeep = std::chrono::hours(30 * 24);  // for an unused folder

fs::path with_suffix(const fs::path& folder, const char* suffix) {
  return folder.parent_path() / (folder.filename().string() + suffix);
}

/// Uses seconds, as images of containers keep times.
std::string stamp_of(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return "";
  return std::to_string(status.st_size) + "." + std::to_string(status.st_mtim.tv_sec);
}

/// Returns the digest of the file's bytes in hexadecimal digits; empty if it can't be read. Needs little memory.
std::string digest_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  llvm::BLAKE3 hash;
  std::vector<char> buffer(1 << 20);
  do {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.update(llvm::StringRef(buffer.data(), static_cast<size_t>(file.gcount())));
  } while (file);
  if (!file.eof()) return "";
  return llvm::toHex(hash.final<16>(), /*LowerCase=*/true);
}

struct Entry {
  std::string file, stamp, digest;
};

/// Returns nothing if the folder has no inventory, or a damaged one.
std::vector<Entry> read_inventory(const fs::path& folder) {
  std::ifstream text(folder / kInventory);
  std::vector<Entry> entries;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    Entry entry;
    if (!(words >> entry.file >> entry.stamp >> entry.digest)) return {};
    entries.push_back(std::move(entry));
  }
  return entries;
}

void write_inventory(const SharedFolder& folder, const fs::path& draft) {
  const fs::path path = draft / kInventory;
  std::string text;
  for (const auto& step : folder.steps)
    text += step.file + ' ' + stamp_of(draft / step.file) + ' ' + digest_of(draft / step.file) + '\n';
  if (const int error = protocol::replace_file(path, text, 0666))
    throw StartError("writing " + path.string() + " failed: " + std::strerror(error));
}

/// Checks the folder and its files: a session maps them into its processes, so only its own user may have written them.
void check_trust(const SharedFolder& folder) {
  std::string problem = protocol::writable_by_others(folder.path);
  for (const auto& entry : read_inventory(folder.path))
    if (problem.empty()) problem = protocol::writable_by_others(folder.path / entry.file);
  if (!problem.empty())
    throw StartError(folder.what + " in " + folder.path.string() + " can't be trusted: " + problem +
                     ". Make it yours and remove the permission of others (chown, chmod go-w), or " + folder.advice);
}

void check_space(const SharedFolder& folder) {
  std::error_code error;
  const auto space = fs::space(folder.path.parent_path(), error);
  if (!error && space.available < folder.space)
    throw StartError("no space for " + folder.what + " in " + folder.path.parent_path().string() + ": " +
                     std::to_string(space.available >> 20) + " MB are free, " + std::to_string(folder.space >> 20) +
                     " MB are needed. Make room, or " + folder.advice);
}

/// Creates `path` and the folders above it, closed to other users.
void make_private(const SharedFolder& folder, const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  if (path.has_relative_path() && path != path.parent_path()) make_private(folder, path.parent_path());
  if (::mkdir(path.c_str(), 0700) == 0 || (errno == EEXIST && fs::is_directory(path, error))) return;
  throw StartError("the folder " + path.string() + " can't be created: " + std::strerror(errno) + "; to put " +
                   folder.what + " elsewhere, " + folder.advice);
}

/// Holds the right to build a folder. Ends with the object, or with its process.
class Lock {
 public:
  /// Waits for the process that has it, if there is one, after a call of `wait(PID)`.
  Lock(const SharedFolder& folder, const std::function<void(const std::string& pid)>& wait) {
    const fs::path path = with_suffix(folder.path, kLock);
    const auto fail = [&](const char* what) {
      throw StartError(std::string("the lock ") + path.string() + what + std::strerror(errno) + "; to put " +
                       folder.what + " elsewhere, " + folder.advice);
    };
    // A lock file is removed with what it locks, so the locked file may no longer be the one of that name.
    for (;;) {
      fd_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
      if (!fd_) fail(" can't be written: ");
      if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) wait(text());
        if (uninterrupted([&] { return ::flock(fd_.get(), LOCK_EX); }) != 0) fail(" can't be taken: ");
      }
      struct stat ours = {}, there = {};
      if (::fstat(fd_.get(), &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
          ours.st_dev == there.st_dev)
        break;
    }
    const std::string pid = std::to_string(::getpid()) + "\n";
    if (::ftruncate(fd_.get(), 0) == 0) (void)!::pwrite(fd_.get(), pid.data(), pid.size(), 0);
  }

 private:
  std::string text() const {
    const std::string text = read_at(fd_.get(), 32);
    return text.substr(0, text.find('\n'));
  }

  Descriptor fd_;
};

/// Removes the other drafts that no process builds any more, and the other folders that were not used for kKeep.
void clean_up(const SharedFolder& folder) {
  std::error_code error;
  const fs::path own_draft = with_suffix(folder.path, kDraft);
  for (const auto& entry : fs::directory_iterator(folder.path.parent_path(), error)) {
    const fs::path path = entry.path();
    if (path == folder.path || path == own_draft || !entry.is_directory(error)) continue;
    const bool is_draft = path.extension() == kDraft;
    const auto used = fs::last_write_time(path / kInventory, error);
    if (!is_draft && (error || fs::file_time_type::clock::now() - used <= kKeep)) continue;
    const fs::path built = is_draft ? path.parent_path() / path.stem() : path;
    const fs::path lock_path = with_suffix(built, kLock);
    const Descriptor lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;  // somebody builds it
    fs::remove_all(path, error);
    if (!is_draft || !fs::exists(built, error)) fs::remove(lock_path, error);
  }
}

/// Returns the seconds of each step in the last build on this machine, by file; empty where there was none.
std::map<std::string, double> last_build(const SharedFolder& folder) {
  std::ifstream file(folder.path.parent_path() / kLastBuild);
  std::string host, name;
  std::map<std::string, double> result;
  if (!std::getline(file, host) || host != protocol::host_name()) return result;
  for (double seconds; file >> seconds >> name;)
    if (seconds >= 0) result[name] = seconds;
  return result;
}

/// Without it the next build has no estimate, which is no error.
void record_build(const SharedFolder& folder, std::map<std::string, double> steps) {
  for (const auto& [name, seconds] : last_build(folder))
    steps.emplace(name, seconds);  // those that a killed builder did
  std::ostringstream text;
  text << protocol::host_name() << "\n";
  for (const auto& [name, seconds] : steps) text << seconds << " " << name << "\n";
  (void)protocol::replace_file(folder.path.parent_path() / kLastBuild, text.view(), 0666);
}

/// Returns how long the steps from `first` on took in the last build; nothing where that is not known of all.
std::optional<double> seconds_from(const std::vector<BuildStep>& steps, size_t first,
                                   const std::map<std::string, double>& known) {
  double sum = 0;
  for (size_t i = first; i < steps.size(); ++i) {
    const auto found = known.find(steps[i].file);
    if (found == known.end()) return std::nullopt;
    sum += found->second;
  }
  return sum;
}

void build(const SharedFolder& folder, std::string building, const ReportProgress& progress) {
  const fs::path draft = with_suffix(folder.path, kDraft);
  make_private(folder, draft);
  const auto known = last_build(folder);
  std::map<std::string, double> took;
  std::error_code error;
  try {
    for (size_t i = 0; i < folder.steps.size(); ++i) {
      const BuildStep& step = folder.steps[i];
      const fs::path finished = draft / step.file, part = draft / (step.file + ".part");
      if (fs::exists(finished, error)) continue;  // by a builder that was killed later
      progress({.message = std::exchange(building, {}),
                .step = protocol::StartStep{.what = step.what,
                                            .number = static_cast<int>(i) + 1,
                                            .count = static_cast<int>(folder.steps.size()),
                                            .last_s = seconds_from(folder.steps, i, known)}});
      const auto begin = std::chrono::steady_clock::now();
      step.build(part);
      took[step.file] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      fs::rename(part, finished);
    }
    record_build(folder, took);
    write_inventory(folder, draft);
    fs::remove_all(folder.path, error);  // damaged
    fs::rename(draft, folder.path);
  } catch (...) {  // what failed here would fail again
    fs::remove_all(draft, error);
    check_space(folder);
    throw;
  }
}

/// Records that the folder is used now.
void touch(const fs::path& folder) {
  std::error_code error;
  fs::last_write_time(folder / kInventory, fs::file_time_type::clock::now(), error);
}

}  // namespace

bool is_complete(const fs::path& folder) {
  const auto entries = read_inventory(folder);
  for (const auto& entry : entries)
    if (stamp_of(folder / entry.file) != entry.stamp) return false;
  return !entries.empty();
}

bool discard_if_damaged(const fs::path& folder) {
  for (const auto& entry : read_inventory(folder)) {
    const std::string digest = digest_of(folder / entry.file);
    if (digest == entry.digest || digest.empty()) continue;  // a file that can't be read may be undamaged
    std::error_code error;
    fs::remove(folder / kInventory, error);
    return true;
  }
  return false;
}

void provide(const SharedFolder& folder, const std::string& building, const ReportProgress& progress) {
  check_trust(folder);
  if (is_complete(folder.path)) return touch(folder.path);
  make_private(folder, folder.path.parent_path());
  const Lock lock(folder, [&](const std::string& pid) {
    progress({.message = "waiting for another session" + (pid.empty() ? "" : " (process " + pid + ")") +
                         ", which builds " + folder.what,
              .step = {}});
  });
  check_trust(folder);
  if (is_complete(folder.path)) return;  // by another session meanwhile
  clean_up(folder);
  check_space(folder);
  build(folder, building, progress);
}

}  // namespace lockstep::compiler
