#include "shell/journal/journal_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "protocol/user_folders.h"
#include "protocol/whole_number.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCells = "cells-", kOutput = "output-", kLines = ".jsonl";
constexpr int64_t kMB = 1 << 20, kDay = 24 * 3600, kSecondNs = 1'000'000'000;
constexpr int64_t kMostNumber = 1'000'000'000;  // of a limit or a file

int64_t changed_ns(const struct stat& status) { return status.st_mtim.tv_sec * kSecondNs + status.st_mtim.tv_nsec; }

/// Whether a session of this or another machine writes it.
bool is_locked(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file && uninterrupted([&] { return ::flock(file.get(), LOCK_SH | LOCK_NB); }) != 0 && errno == EWOULDBLOCK;
}

/// Returns the numbers of the files "KIND-NUMBER.jsonl" of a journal, ascending.
std::vector<int64_t> numbers_of(const std::string& journal, std::string_view kind) {
  std::vector<int64_t> numbers;
  std::error_code error;
  for (fs::directory_iterator entry(journal, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(kind) || !name.ends_with(kLines)) continue;
    const std::string_view digits =
        std::string_view(name).substr(kind.size(), name.size() - kind.size() - kLines.size());
    if (const auto number = protocol::whole_number(digits, int64_t{0}, kMostNumber)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

/// Folders of sessions alone are ours to remove: PID-HEX.
bool is_id(const std::string& name) {
  const size_t dash = name.find('-');
  return dash != std::string::npos && dash > 0 && dash + 1 < name.size() &&
         name.find_first_not_of("0123456789") == dash &&
         name.find_first_not_of("0123456789abcdef", dash + 1) == std::string::npos;
}

}  // namespace

JournalLimits parse_journal_limits(std::string_view text) {
  JournalLimits limits;
  if (text == "off") {
    limits.is_off = true;
    return limits;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, equals);
    const auto value = protocol::whole_number(part.substr(std::min(equals + 1, part.size())), int64_t{0}, kMostNumber);
    int64_t* const field = name == "size"       ? &limits.output_mb
                           : name == "sessions" ? &limits.sessions
                           : name == "days"     ? &limits.days
                           : name == "all"      ? &limits.all_mb
                                                : nullptr;
    if (!field || !value || (field == &limits.output_mb && *value == 0))
      throw UsageError(
          fmt::format("LOCKSTEP_JOURNAL has '{}': write off, or some of size=MB,sessions=N,days=N,all=MB", part));
    *field = *value;
  }
  return limits;
}

JournalLimits journal_limits() {
  const char* text = std::getenv("LOCKSTEP_JOURNAL");
  return text ? parse_journal_limits(text) : JournalLimits();
}

std::string journals_folder() {
  const fs::path folder = protocol::user_folder("XDG_STATE_HOME", ".local/state");
  return folder.empty() ? "" : (folder / "lockstep/sessions").string();
}

std::string cells_path(const std::string& journal, int64_t number) {
  return number == 0 ? journal + "/cells.jsonl" : fmt::format("{}/{}{}{}", journal, kCells, number, kLines);
}

std::string output_path(const std::string& journal, int64_t number) {
  return fmt::format("{}/{}{}{}", journal, kOutput, number, kLines);
}

std::vector<int64_t> more_cells_files(const std::string& journal) { return numbers_of(journal, kCells); }

std::vector<int64_t> output_files(const std::string& journal) { return numbers_of(journal, kOutput); }

std::vector<JournalInfo> read_journals(const std::string& folder) {
  std::vector<JournalInfo> journals;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    JournalInfo info{.id = entry->path().filename(), .path = entry->path()};
    struct stat status = {};
    if (!is_id(info.id) || ::lstat(info.path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) continue;
    info.changed_ns = changed_ns(status);
    std::error_code ignored;
    for (fs::directory_iterator file(info.path, ignored), last; !ignored && file != last; file.increment(ignored)) {
      if (::lstat(file->path().c_str(), &status) != 0) continue;
      info.bytes += static_cast<uint64_t>(status.st_size);
      info.changed_ns = std::max(info.changed_ns, changed_ns(status));
    }
    info.is_open = is_locked(cells_path(info.path));
    journals.push_back(std::move(info));
  }
  std::sort(journals.begin(), journals.end(), [](const JournalInfo& a, const JournalInfo& b) {
    return a.changed_ns != b.changed_ns ? a.changed_ns < b.changed_ns : a.id < b.id;
  });
  return journals;
}

JournalInfo find_journal(const std::string& id) {
  std::vector<std::string> names;
  std::vector<JournalInfo> found;
  for (JournalInfo& journal : read_journals()) {
    names.push_back(journal.id);
    if (journal.id == id) return journal;
    if (id == "last" && !journal.is_open) found = {journal};
    if (id != "last" && journal.id.starts_with(id)) found.push_back(std::move(journal));
  }
  if (found.size() == 1) return found.front();
  if (names.empty()) throw UsageError("there is no journal of a session in " + journals_folder());
  if (id == "last") throw UsageError("no session that has a journal has ended yet");
  if (found.empty())
    throw UsageError("there is no journal of a session " + id + did_you_mean(id, names) +
                     "; `lockstep sessions list --all` shows those that are there");
  std::vector<std::string> ids;
  for (const JournalInfo& journal : found) ids.push_back(journal.id);
  throw UsageError(fmt::format("{} begins the ids of {} sessions: {}", id, ids.size(), fmt::join(ids, ", ")));
}

std::string remove_journal(const JournalInfo& journal) {
  if (is_locked(cells_path(journal.path))) return journal.id + ": its session runs";
  std::error_code error;
  fs::remove_all(journal.path, error);
  return error ? journal.path + ": " + error.message() : "";
}

std::vector<std::string> remove_old_journals(const JournalLimits& limits, const std::string& folder) {
  std::vector<JournalInfo> journals = read_journals(folder);
  std::erase_if(journals, [](const JournalInfo& each) { return each.is_open; });
  uint64_t bytes = 0;
  for (const JournalInfo& journal : journals) bytes += journal.bytes;
  const int64_t now = std::time(nullptr);
  std::vector<std::string> removed;
  auto left = static_cast<int64_t>(journals.size());
  for (const JournalInfo& journal : journals) {
    const bool is_old = now - journal.changed_ns / kSecondNs > limits.days * kDay;
    if (left <= limits.sessions && bytes <= static_cast<uint64_t>(limits.all_mb * kMB) && !is_old) break;
    --left;
    bytes -= journal.bytes;
    if (remove_journal(journal).empty()) removed.push_back(journal.id);
  }
  return removed;
}

}  // namespace lockstep::shell
