#include "shell/processes/session_records.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "collectives/log/marked_processes.h"
#include "collectives/log/process_identity.h"
#include "protocol/descriptor.h"
#include "protocol/files.h"
#include "protocol/read_json.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A folder of a session is named PID-HEX.
std::optional<pid_t> pid_of_name(const std::string& name) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  const std::string rest(end, name.data() + name.size());
  const bool good = error == std::errc() && pid > 0 && rest.size() > 1 && rest[0] == '-' &&
                    rest.find_first_not_of("0123456789abcdef", 1) == std::string::npos;
  return good ? std::optional(pid) : std::nullopt;
}

bool runs(pid_t pid, uint64_t start_time) {
  const std::optional<uint64_t> now = dist::process_start_time(pid);
  return now && *now == start_time;
}

template <typename T>
T field(const json& object, const char* name, T otherwise) {
  if (!object.is_object() || !object.contains(name)) return otherwise;
  try {
    return object[name].get<T>();
  } catch (const json::exception&) {  // of another type: the file is damaged there
    return otherwise;
  }
}

SessionRecord read_record(const fs::path& path, pid_t pid) {
  SessionRecord record;
  record.id = path.filename();
  record.path = path;
  record.pid = pid;
  const json description = protocol::read_json(protocol::read_file(path / "session.json").value_or(""));
  record.is_started = description.is_object();
  const auto start_time = field<uint64_t>(description, "start_time", 0);
  // A session that is just starting has no description yet; then the pid alone has to do.
  record.is_alive = start_time != 0 ? runs(pid, start_time) : dist::process_start_time(pid).has_value();
  record.started = field<int64_t>(description, "started", 0);
  record.ranks = field<int>(description, "ranks", 0);
  record.backend = field<std::string>(description, "backend", "");
  const json versions = field<json>(description, "versions", json::object());
  record.libtorch = field<std::string>(versions, "libtorch", "");
  record.compiler = field<std::string>(versions, "compiler", "");
  for (const json& worker : field<json>(description, "workers", json::array())) {
    WorkerRecord entry{field<int>(worker, "rank", 0), field<pid_t>(worker, "pid", 0),
                       field<uint64_t>(worker, "start_time", 0)};
    entry.is_alive = entry.pid > 0 && runs(entry.pid, entry.start_time);
    record.workers.push_back(entry);
  }
  std::error_code error;
  for (fs::directory_iterator entry(path / "cells", error), end; !error && entry != end; entry.increment(error)) {
    int64_t number = 0;
    const std::string name = entry->path().stem();
    if (name.starts_with("cell_") &&
        std::from_chars(name.data() + 5, name.data() + name.size(), number).ec == std::errc())
      record.cells.push_back(number);
  }
  std::sort(record.cells.begin(), record.cells.end());
  return record;
}

/// Kills a process that is still the one that was written down, and its group; waits until it is gone.
bool end_worker(const WorkerRecord& worker) {
  const Descriptor process = open_process(worker.pid);
  // The descriptor holds on to this process; if the start time is right now, it is the right one for good.
  if (!process || !runs(worker.pid, worker.start_time)) return false;
  if (::getpgid(worker.pid) == worker.pid) ::kill(-worker.pid, SIGKILL);
  signal_process(process.get(), SIGKILL);
  is_ready(process.get(), POLLIN, std::chrono::seconds(5));
  return true;
}

}  // namespace

std::vector<SessionRecord> read_sessions(const std::vector<std::string>& folders) {
  std::vector<SessionRecord> records;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      const std::optional<pid_t> pid = pid_of_name(entry->path().filename());
      std::error_code ignored;
      if (pid && entry->is_directory(ignored) && !entry->is_symlink(ignored))
        records.push_back(read_record(entry->path(), *pid));
    }
  }
  std::sort(records.begin(), records.end(), [](const SessionRecord& a, const SessionRecord& b) {
    return a.started != b.started ? a.started < b.started : a.id < b.id;
  });
  return records;
}

namespace {

/// Whether its shell was killed before it wrote or started anything.
bool has_nothing(const SessionRecord& record) {
  if (record.is_started || !record.cells.empty()) return false;
  std::error_code error;
  for (fs::directory_iterator entry(record.path, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename() != "cells") return false;
  return true;
}

Cleaned clean(const std::vector<SessionRecord>& records) {
  Cleaned cleaned;
  for (const SessionRecord& record : records) {
    if (record.is_alive) continue;
    for (const WorkerRecord& worker : record.workers)
      if (worker.is_alive && end_worker(worker)) ++cleaned.workers;
    dist::end_marked_processes({"LOCKSTEP_SESSION_DIR=" + record.path});
    std::error_code error;
    fs::remove_all(record.path, error);
    if (error)
      cleaned.problems.push_back(record.path + ": " + error.message());
    else
      cleaned.sessions.push_back(record.id);
  }
  return cleaned;
}

}  // namespace

Cleaned clean_sessions(const std::vector<std::string>& folders) { return clean(read_sessions(folders)); }

Cleaned clean_prompts(const std::vector<std::string>& folders) {
  std::vector<SessionRecord> records = read_sessions(folders);
  std::erase_if(records, [](const SessionRecord& each) { return each.backend != "python" && !has_nothing(each); });
  return clean(records);
}

}  // namespace lockstep::shell
