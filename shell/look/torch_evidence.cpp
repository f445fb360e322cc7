#include "shell/look/torch_evidence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "inspectors/evidence/flight_recorder.h"
#include "inspectors/evidence/ras.h"
#include "inspectors/remains/error_file.h"
#include "protocol/descriptor.h"
#include "protocol/files.h"
#include "shell/jobs/job_picture.h"
#include "shell/look/worker_server.h"

namespace lockstep::shell {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kLargestErrorFile = 16 << 20;
constexpr std::chrono::milliseconds kDumpPoll{50};  // a file that is being written has no event of its own

std::string variable(const RunningRank& rank, const char* name) {
  const auto found = rank.variables.find(name);
  return found == rank.variables.end() ? std::string() : found->second;
}

/// Returns where a rank writes its dumps; empty where the job does not say it.
std::string dump_of(const RunningRank& rank) {
  std::string stem = variable(rank, "TORCH_FR_DUMP_TEMP_FILE");
  if (stem.empty()) stem = variable(rank, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
  return stem.empty() ? stem : (fs::path(rank.folder) / (stem + std::to_string(rank.rank))).string();
}

std::optional<timespec> written(const std::string& path) {
  struct stat status = {};
  if (path.empty() || ::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return status.st_mtim;
}

bool is_later(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

/// Returns when a process was started: its folder in /proc has that time, about.
std::optional<timespec> started(int64_t pid) {
  struct stat status = {};
  if (::stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0) return std::nullopt;
  return status.st_ctim;
}

/// Asks a rank for a dump. Returns whether somebody reads its pipe.
bool trigger(const RunningRank& rank) {
  const std::string stem = variable(rank, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  if (stem.empty()) return false;
  const std::string path = (fs::path(rank.folder) / (stem + std::to_string(rank.rank) + ".pipe")).string();
  const Descriptor pipe(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat status = {};
  return pipe && ::fstat(pipe.get(), &status) == 0 && S_ISFIFO(status.st_mode) && write_all(pipe.get(), "1\n");
}

void add_dumps(const RunningJob& job, std::chrono::milliseconds limit, inspect::Remains& remains,
               std::vector<std::string>& problems) {
  std::map<int, timespec> asked;  // rank → when its last dump was written
  for (const RunningRank& each : job.ranks)
    if (const std::string path = dump_of(each); !path.empty() && is_own_process(each.pid)) {
      const timespec before = written(path).value_or(timespec{});
      if (trigger(each)) asked[each.rank] = before;
    }
  const auto deadline = Clock::now() + limit;
  for (const RunningRank& each : job.ranks) {
    const std::string path = dump_of(each);
    if (path.empty()) continue;
    const auto before = asked.find(each.rank);
    const auto is_new = [&] {
      const auto now = written(path);
      return before == asked.end() || (now && is_later(*now, before->second));
    };
    std::optional<inspect::Evidence> dump;
    std::string problem;
    // A dump is written in pieces: one that can't be read may not be complete yet.
    for (;; std::this_thread::sleep_for(kDumpPoll)) {
      const auto now = written(path), begun = started(each.pid);
      if (now && begun && !is_later(*begun, *now) && is_new()) {
        try {
          dump = inspect::read_flight_recorder_file(path, each.rank);
          break;
        } catch (const inspect::UnreadableEvidence& error) {
          problem = error.what();
        }
      }
      if (before == asked.end() || Clock::now() >= deadline) break;
    }
    if (dump) {
      complete_default_group(job.world_size, *dump);
      remains.evidence.push_back(std::move(*dump));
      ++remains.files;
    } else if (!problem.empty() || before != asked.end()) {
      problems.push_back(
          problem.empty() ? fmt::format("rank {} has not written its dump to {} in time", each.rank, path) : problem);
    }
  }
}

/// Asks the servers that torch runs in ranks. Their dumps have no lines: a rank that waits in such a call is at the line
/// that its stack has.
void add_recorders(const RunningJob& job, std::chrono::milliseconds limit, inspect::Remains& remains,
                   std::vector<std::string>& problems) {
  for (const RunningRank& rank : job.ranks) {
    for (const std::string& text : ask_worker_server(rank.pid, variable(rank, "TORCH_WORKER_SERVER_SOCKET"), limit)) {
      try {
        inspect::Evidence dump = inspect::read_flight_recorder(text, fmt::format("rank {}", rank.rank), rank.rank);
        if (dump.calls.empty() && dump.groups.empty()) continue;  // of a backend that the rank does not use
        complete_default_group(job.world_size, dump);
        const auto stack = std::ranges::find_if(
            remains.stacks, [&](const inspect::RankStack& each) { return each.rank == rank.rank && each.is_main; });
        const auto doing = std::ranges::find(remains.doing, rank.rank, &inspect::RankDoing::rank);
        for (inspect::EvidenceCall& call : dump.calls)
          if (call.frames.empty() && call.state != inspect::EvidenceState::completed && stack != remains.stacks.end() &&
              doing != remains.doing.end() && doing->op == call.op)
            call.frames = stack->frames;
        remains.evidence.push_back(std::move(dump));
        ++remains.files;
      } catch (const inspect::UnreadableEvidence& error) {
        problems.emplace_back(error.what());
      }
    }
  }
}

/// Adds the exceptions of ranks that are gone, which torchrun's workers write into folders of their local ranks.
void add_error_files(const RunningJob& job, inspect::Remains& remains, std::vector<std::string>& problems) {
  for (const int rank : job.gone()) {
    for (const RunningRank& each : job.ranks) {
      const std::string own = variable(each, "TORCHELASTIC_ERROR_FILE");
      if (own.empty() || each.local_rank < 0) continue;
      const fs::path folder = fs::path(own).parent_path().parent_path();
      const std::string path = (folder / std::to_string(rank - each.rank + each.local_rank) / "error.json").string();
      const auto bytes = protocol::read_file(path, kLargestErrorFile);
      if (!bytes) break;
      try {
        remains.errors.push_back(inspect::read_error_file(*bytes, path, rank));
        ++remains.files;
      } catch (const inspect::UnreadableEvidence& error) {
        problems.emplace_back(error.what());
      }
      break;
    }
  }
}

void add_ras(const RunningJob& job, inspect::Remains& remains, std::vector<std::string>& problems) {
  const auto with_nccl = std::ranges::find_if(job.ranks, &RunningRank::uses_gpu);
  if (with_nccl == job.ranks.end()) return;
  try {
    inspect::Evidence answer = inspect::ask_ras({.address = variable(*with_nccl, "NCCL_RAS_ADDR")});
    std::map<int64_t, int> ranks;
    for (const RunningRank& each : job.ranks) ranks[each.pid] = each.rank;
    inspect::name_ranks(answer, ranks);
    // The first process of a machine has the address: another job may answer.
    std::erase_if(answer.groups, [](const inspect::EvidenceGroup& group) {
      return std::ranges::none_of(group.members, [](const inspect::EvidenceMember& each) { return each.rank >= 0; });
    });
    if (answer.groups.empty()) return;
    remains.evidence.push_back(std::move(answer));
    ++remains.files;
  } catch (const inspect::UnreadableEvidence& error) {
    problems.push_back(fmt::format("NCCL's RAS: {}", error.what()));
  }
}

}  // namespace

void add_torch_evidence(const RunningJob& job, std::chrono::milliseconds limit, inspect::Remains& remains,
                        std::vector<std::string>& problems) {
  add_dumps(job, limit, remains, problems);
  if (remains.evidence.empty()) add_recorders(job, limit, remains, problems);
  add_error_files(job, remains, problems);
  add_ras(job, remains, problems);
}

bool is_own_process(int64_t pid) {
  struct stat status = {};
  return ::stat(fmt::format("/proc/{}", pid).c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

}  // namespace lockstep::shell
