#include "shell/jobs/job_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/read_json.h"
#include "protocol/runtime_folder.h"
#include "shell/processes/random_key.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kLargestFile = 1 << 20;

bool runs(int64_t pid, uint64_t start_time) {
  return dist::process_start_time(static_cast<pid_t>(pid)) == std::optional(start_time);
}

json read_object(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error))) return nullptr;
  return protocol::read_json(protocol::read_file(path, kLargestFile).value_or(""));
}

/// Returns the number in "rank-3.json".
std::optional<int> rank_of(const std::string& name) {
  constexpr std::string_view kBegin = "rank-", kEnd = ".json";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  int rank = 0;
  const char* last = name.data() + name.size() - kEnd.size();
  const auto [end, error] = std::from_chars(name.data() + kBegin.size(), last, rank);
  return error == std::errc() && end == last && rank >= 0 ? std::optional(rank) : std::nullopt;
}

void add_folder(const fs::path& folder, Job& job) {
  job.folders.push_back(folder);
  if (const json made = read_object(folder / "job.json"); made.is_object()) {
    try {
      job.is_watched = job.is_watched || runs(made.at("pid"), made.at("start_time"));
      job.is_session = job.is_session || made.value("session", false);
    } catch (const json::exception&) {  // written by no version of this program: nobody watches
    }
  }
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::optional<int> rank = rank_of(entry->path().filename());
    if (!rank) continue;
    const json text = read_object(entry->path());
    if (!text.is_object()) continue;
    try {
      JobMember member{.facts = text.get<protocol::JobRank>(), .socket = protocol::rank_socket(folder, *rank)};
      if (member.facts.rank != *rank || !member.facts.is_possible()) continue;
      member.is_alive = runs(member.facts.pid, member.facts.start_time);
      job.ranks.push_back(std::move(member));
    } catch (const json::exception&) {  // not a rank's
    }
  }
}

/// Orders ranks by number; of two with one number the living one stays, or the later.
void order(Job& job) {
  std::ranges::sort(job.ranks, [](const JobMember& a, const JobMember& b) {
    if (a.facts.rank != b.facts.rank) return a.facts.rank < b.facts.rank;
    if (a.is_alive != b.is_alive) return a.is_alive;
    return a.facts.started > b.facts.started;
  });
  const auto same = [](const JobMember& a, const JobMember& b) { return a.facts.rank == b.facts.rank; };
  job.ranks.erase(std::unique(job.ranks.begin(), job.ranks.end(), same), job.ranks.end());
}

int64_t started(const Job& job) {
  int64_t first = INT64_MAX;
  for (const JobMember& each : job.ranks) first = std::min(first, each.facts.started);
  return first;
}

}  // namespace

bool Job::is_alive() const {
  return is_watched || std::ranges::any_of(ranks, [](const JobMember& each) { return each.is_alive; });
}

RankSet Job::live_ranks() const {
  RankSet live;
  for (const JobMember& each : ranks)
    if (each.is_alive) live.insert(each.facts.rank);
  return live;
}

int Job::world_size() const { return ranks.empty() ? 0 : ranks.front().facts.world_size; }

std::string Job::absence_of(int number) const {
  bool is_known = true;
  for (const JobMember& each : ranks) {
    // The first of its machine: launchers number them in a row.
    const int64_t first = int64_t{each.facts.rank} - each.facts.local_rank;
    if (number >= first && number < first + each.facts.local_world_size) return "has not called this package yet";
    is_known = is_known && each.facts.local_world_size > 0;
  }
  return is_known ? "runs on another machine" : "runs on another machine, or has not called this package yet";
}

const JobMember* Job::rank(int number) const {
  for (const JobMember& each : ranks)
    if (each.facts.rank == number) return &each;
  return nullptr;
}

std::vector<Job> read_jobs(const std::vector<std::string>& folders) {
  std::map<std::string, Job> by_id;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename();
      if (!name.starts_with(protocol::kJobPrefix) || !protocol::private_folder_problem(entry->path()).empty()) continue;
      const std::string id = name.substr(std::strlen(protocol::kJobPrefix));
      Job& job = by_id[id];
      job.id = id;
      add_folder(entry->path(), job);
    }
  }
  std::vector<Job> jobs;
  for (auto& [id, job] : by_id) {
    order(job);
    jobs.push_back(std::move(job));
  }
  std::ranges::stable_sort(jobs, {}, started);
  return jobs;
}

Job read_job(const std::string& folder) {
  Job job;
  const std::string name = fs::path(folder).filename();
  job.id = name.starts_with(protocol::kJobPrefix) ? name.substr(std::strlen(protocol::kJobPrefix)) : name;
  add_folder(folder, job);
  order(job);
  return job;
}

std::vector<std::string> clean_jobs(const std::vector<std::string>& folders) {
  char host[256] = {};
  const bool known = ::gethostname(host, sizeof host - 1) == 0;
  // Its processes can't be looked for, where a home on the network has the folder.
  const auto is_elsewhere = [&](const JobMember& each) { return !known || each.facts.host != host; };
  std::vector<std::string> cleaned;
  for (const Job& job : read_jobs(folders)) {
    if (job.is_alive() || std::ranges::any_of(job.ranks, is_elsewhere)) continue;
    // A folder without ranks may be one that a rank is just making.
    if (job.ranks.empty() && !fs::exists(fs::path(job.folders.front()) / "job.json")) continue;
    // One that has begun since it was read: launchers start a `lockstep run` for each rank at once.
    if (std::ranges::any_of(job.folders, [](const std::string& each) { return read_job(each).is_alive(); })) continue;
    for (const std::string& folder : job.folders) {
      std::error_code ignored;  // it is listed again
      fs::remove_all(folder, ignored);
    }
    cleaned.push_back(job.id);
  }
  return cleaned;
}

JobFolder::JobFolder(const std::vector<std::string>& launcher, bool is_session) {
  path_ = protocol::runtime_directory() + "/" + protocol::kJobPrefix + std::to_string(::getpid()) + "-" +
          random_key().substr(0, 8);
  if (protocol::rank_socket(path_, 99999).size() > protocol::kLongestSocketPath)
    throw StartError("the paths of the job's sockets are too long (" + path_ +
                     "): set XDG_RUNTIME_DIR to a shorter one");
  if (::mkdir(path_.c_str(), 0700) != 0)
    throw StartError("the job's folder " + path_ + " could not be made: " + std::strerror(errno) +
                     "; make room there, or set XDG_RUNTIME_DIR to another folder");
  try {
    const json description = {{"pid", ::getpid()},
                              {"start_time", dist::process_start_time(::getpid()).value_or(0)},
                              {"launcher", launcher},
                              {"session", is_session}};
    protocol::write_at_once(path_ + "/job.json",
                            description.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  } catch (const Error& error) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    throw StartError(error.what());
  }
}

void JobFolder::report_end(int rank, int64_t pid, int exit_code, int64_t time_s) const {
  const json end = {{"rank", rank}, {"pid", pid}, {"exitcode", exit_code}, {"time", time_s}};
  try {
    protocol::write_at_once(protocol::launcher_report(path_), json::array({end}).dump());
  } catch (const Error&) {  // a full disk: the judge says that it does not know how the rank ended
  }
}

std::optional<JobFolder::Judge> JobFolder::judge() const {
  const json relay = read_object(path_ + "/judge.json");
  try {
    if (relay.is_object() && runs(relay.at("pid"), relay.at("start_time")))
      return Judge{.host = relay.at("host"), .relay = relay.at("pid"), .is_silent = relay.value("is_silent", false)};
  } catch (const json::exception&) {  // of another version
  }
  return std::nullopt;
}

std::optional<JobFolder::Verdict> JobFolder::verdict() const {
  const json said = read_object(path_ + "/verdict.json");
  try {
    if (said.is_object())
      return Verdict{.exit_code = said.at("exit_code"), .ends = said.at("ends"), .host = said.at("host")};
  } catch (const json::exception&) {  // of another version
  }
  return std::nullopt;
}

JobFolder::~JobFolder() {
  // What a relay or a dying rank writes meanwhile keeps the folder: it is there again after its entries were read.
  std::error_code ignored;
  for (int i = 0; i < 5 && fs::exists(path_, ignored); ++i) fs::remove_all(path_, ignored);
}

std::string full_disk() {
  constexpr unsigned long kSmallest = 64 << 10;  // a rank writes a few files of one page
  for (const std::string& folder : protocol::runtime_directories()) {
    struct statvfs disk = {};
    if (::statvfs(folder.c_str(), &disk) == 0 && disk.f_blocks > 0 && disk.f_bavail * disk.f_frsize < kSmallest)
      return fmt::format("{} has {} bytes left (df {})", folder, disk.f_bavail * disk.f_frsize, folder);
  }
  return "";
}

}  // namespace lockstep::shell
