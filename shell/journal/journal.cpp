#include "shell/journal/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "protocol/environment.h"
#include "protocol/user_folders.h"
#include "protocol/version.h"
#include "shell/journal/record.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;

constexpr int kSchema = 1;
constexpr int kFiles = 8;  // of output, and of cells: the oldest of so many goes
constexpr size_t kMostEarly = 1000;

/// Whether it is among what may be dropped. The rest is what a session cannot be understood without.
bool is_bulk(const Event& event) {
  if (const auto* rank = std::get_if<RankEvent>(&event)) return rank->state != RankState::dead;
  if (const auto* message = std::get_if<MessageEvent>(&event))
    return !(message->data.is_object() && message->data.contains("names"));  // of %undo
  return !std::holds_alternative<SessionEvent>(event) && !std::holds_alternative<CellEvent>(event) &&
         !std::holds_alternative<ErrorEvent>(event) && !std::holds_alternative<FindingEvent>(event) &&
         !std::holds_alternative<MarkdownEvent>(event);
}

/// Whether it is about a moment, and later events say more: how far a loop is, but for its begin and its end.
bool is_momentary(const Event& event) {
  const auto* progress = std::get_if<ProgressEvent>(&event);
  if (!progress || progress->state != LoopState::running) return std::holds_alternative<ActivityEvent>(event);
  return std::ranges::any_of(progress->done, [](const auto& each) { return each.second > 0; });
}

/// Adds what Event has beyond its JSON: what front ends that draw a journal need.
void add_more(const Event& event, nlohmann::json& record) {
  if (const auto* session = std::get_if<SessionEvent>(&event))
    record["asked"] = session->is_asked, record["job"] = session->is_job;
  if (const auto* value = std::get_if<ValueEvent>(&event)) record["number"] = value->number;
  if (const auto* error = std::get_if<ErrorEvent>(&event); error && error->others_run) record["others_run"] = true;
  if (const auto* message = std::get_if<MessageEvent>(&event); message && message->is_help) record["help"] = true;
}

/// Makes a folder for this user alone. Returns why that failed.
std::string make_private(const fs::path& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return "";
  return path.string() + " can't be made: " + std::strerror(errno);
}

/// A write beyond the limit on the size of files would end the process (SIGXFSZ).
int64_t largest_file() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur > INT64_MAX) return INT64_MAX;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

Journal::Journal(std::string id, const JournalLimits& limits, std::function<nlohmann::json()> describe,
                 std::function<void(const std::string&)> warn)
    : id_(std::move(id)), limits_(limits), describe_(std::move(describe)), warn_(std::move(warn)) {
  if (limits.is_off) state_ = State::off;
}

Journal::~Journal() {
  if (state_ != State::open) return;
  write(false, {{"event", "closed"}, {"inputs", inputs_}});
  cells_.file.descriptor.reset();
  lock_.reset();
  remove_old_journals(limits_);
}

void Journal::begin_cell(const JournalCell& cell) {
  ++inputs_;  // also where it is lost
  if (state_ == State::off || (state_ == State::waits_for_cell && !open())) return;  // the next cell tries again
  write(false, {{"event", "input"},
                {"input", inputs_},
                {"cell", cell.number},
                {"title", cell.title},
                {"text", cell.text},
                {"ranks", cell.ranks}});
  last_input_ = records_;
}

void Journal::end_cell(int64_t number, const RankSet& ranks, CellStatus status, int faults) {
  if (state_ != State::open) return;
  write(false, {{"event", "ran"},
                {"input", inputs_},
                {"cell", number},
                {"ranks", ranks},
                {"status", status},
                {"faults", faults}});
}

void Journal::take(const Event& event) {
  if (state_ == State::off || is_momentary(event)) return;
  nlohmann::json record = to_event_json(event);
  add_more(event, record);
  record["time"] = seconds();
  if (state_ == State::open)
    write(is_bulk(event), std::move(record));
  else if (early_.size() < kMostEarly)
    early_.emplace_back(is_bulk(event), std::move(record));
}

/// Begins the journal. Returns false where that can't be done now.
bool Journal::open() {
  const fs::path folder = journals_folder();
  if (folder.empty()) {
    state_ = State::off;
    return false;
  }
  path_ = folder / id_;
  std::error_code error;
  fs::create_directories(folder.parent_path().parent_path(), error);
  std::string problem = protocol::writable_by_others(path_);
  for (const fs::path& path : {folder.parent_path(), folder, fs::path(path_)})
    if (problem.empty()) problem = make_private(path);
  if (problem.empty()) problem = open_file(cells_.file, cells_path(path_));
  if (!problem.empty()) {
    lose(problem);
    return false;
  }
  uninterrupted([&] { return ::flock(cells_.file.descriptor.get(), LOCK_EX); });
  state_ = State::open;
  nlohmann::json record = describe_();
  record["event"] = "journal";
  record["schema"] = kSchema;
  record["id"] = id_;
  record["pid"] = ::getpid();
  record["host"] = protocol::host_name();
  record["started"] = std::time(nullptr);
  record["lockstep"] = kVersion;
  write(false, std::move(record));
  for (auto& [bulk, early] : std::exchange(early_, {})) write(bulk, std::move(early));
  return true;
}

std::string Journal::open_file(File& file, const std::string& path) {
  file = {Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600)), path, 0};
  return file.descriptor ? "" : path + " can't be written: " + std::strerror(errno);
}

void Journal::write(bool is_bulk, nlohmann::json record) {
  File& file = (is_bulk ? output_ : cells_).file;
  std::string why;
  if (!file.descriptor || file.size >= limits_.output_mb * (1 << 20) / kFiles) why = begin_file(is_bulk);
  record["n"] = ++records_;
  record.emplace("time", seconds());
  if (why.empty()) why = append(file, record_line(record));
  if (!why.empty()) lose(why);
}

double Journal::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

/// Has output, or cells, go to a new file, and the oldest one removed where there are as many as may be: the first one of
/// cells stays. Returns why there is none.
std::string Journal::begin_file(bool is_bulk) {
  Files& files = is_bulk ? output_ : cells_;
  const auto path_of = is_bulk ? output_path : cells_path;
  File next;
  if (const std::string problem = open_file(next, path_of(path_, files.last + 1)); !problem.empty())
    return files.file.descriptor ? "" : problem;  // the last one grows
  std::swap(files.file, next);
  if (!is_bulk && !lock_) lock_ = std::move(next.descriptor);
  ++files.last;
  if (files.last - files.first < (is_bulk ? kFiles : kFiles - 1)) return "";
  const nlohmann::json note = {{"event", "rotated"},
                               {"of", is_bulk ? "output" : "cells"},
                               {"file", files.first},
                               {"n", ++records_},
                               {"time", seconds()}};
  append(cells_.file, record_line(note));
  ::unlink(path_of(path_, files.first++).c_str());
  return "";
}

/// Returns why it could not be written, and leaves no part of the line then.
std::string Journal::append(File& file, const std::string& line) {
  static const int64_t most = largest_file();
  const auto size = static_cast<int64_t>(line.size());
  const bool fits = file.size <= most - size;
  if (fits && write_all(file.descriptor.get(), line)) {
    file.size += size;
    return "";
  }
  const int error = fits ? errno : EFBIG;
  if (fits && ::ftruncate(file.descriptor.get(), file.size) != 0) {
    write_all(file.descriptor.get(), "\n");  // the line that is torn ends here
    struct stat status = {};
    if (::fstat(file.descriptor.get(), &status) == 0) file.size = status.st_size;
  }
  return file.path + " can't be written: " + std::strerror(error);
}

void Journal::lose(const std::string& why) {
  if (!std::exchange(has_warned_, true))
    warn_("the journal of this session is not complete: " + why + ". The session goes on; --no-journal keeps none");
}

}  // namespace lockstep::shell
