#include "python/operators/job_log.h"

#include <fmt/format.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <unistd.h>

#include <mutex>
#include <unordered_map>
#include <utility>

#include "protocol/dist_error.h"
#include "protocol/job.h"
#include "python/agent/agent.h"
#include "python/operators/call_sites.h"

namespace lockstep::python {
namespace {

struct State {
  std::mutex mutex;
  JobLog mine;
  std::unordered_map<std::string, uint64_t> sites;  // "train.py:88 in step" → its number in the log
};

// Never destroyed: threads of c10d may outlive it.
State& state() {
  static auto* one = new State;
  return *one;
}

struct Line {
  dist::CallPlace
      place;  // the innermost line of the program itself; the innermost outside of torch where there is none
  bool is_c10d = true;  // no function of torch.distributed is the innermost frame: C++ of torch calls, as a Reducer
};

Line program_line() {
  const auto trace = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  const torch::SymbolizedTracebacks symbolized = torch::symbolize({trace.get()});
  Line line;
  bool innermost = true;
  for (const uint64_t index : symbolized.tracebacks.at(0)) {
    const auto& frame = symbolized.all_frames.at(index);
    if (std::exchange(innermost, false)) line.is_c10d = frame.filename.find("/torch/distributed/") == std::string::npos;
    if (!is_users(frame.filename)) continue;
    dist::CallPlace place{
        .file = frame.filename, .line = static_cast<int64_t>(frame.lineno), .function = frame.funcname};
    const bool is_installed = frame.filename.find("/site-packages/") != std::string::npos ||
                              frame.filename.find("/dist-packages/") != std::string::npos ||
                              frame.filename.find("/lib/python3") != std::string::npos;
    if (is_installed && !line.place.file.empty()) continue;
    line.place = std::move(place);
    if (!is_installed) break;
  }
  return line;
}

}  // namespace

dist::Caller find_python_caller() {
  const auto [place, is_c10d] = program_line();
  dist::Caller caller{.named = true, .is_c10d = is_c10d};
  if (place.file.empty()) return caller;
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (!all.mine.log) return caller;
  const auto [found, fresh] = all.sites.try_emplace(place.str(), all.sites.size() + 1);
  if (fresh && !all.mine.log->name_site(found->second, place)) found->second = 0;  // the table is full
  caller.site = found->second;
  return caller;
}

namespace {

std::shared_ptr<dist::CollectiveLog> make_log(int rank, int world_size) {
  if (const std::string folder = agent::job_folder(); !folder.empty()) {
    try {
      return std::make_shared<dist::CollectiveLog>(protocol::rank_log(folder, rank), rank, world_size);
    } catch (const dist::Error&) {  // no room there; memory does, as long as the process lives
    }
  }
  return std::make_shared<dist::CollectiveLog>("", rank, world_size);
}

}  // namespace

JobLog use_job_log(int rank, int world_size) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  JobLog& mine = all.mine;
  if (!mine.log || mine.rank != rank || mine.world_size != world_size) {
    mine.log = make_log(rank, world_size);
    mine.watch = std::make_shared<dist::HangWatch>(mine.log->mapping());
    mine.abort = std::make_shared<dist::AbortFlag>();
    mine.rank = rank;
    mine.world_size = world_size;
    all.sites.clear();
  }
  return mine;
}

void resize_job_log(int world_size) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (!all.mine.log) return;
  all.mine.world_size = world_size;
  all.mine.log->mapping().header().world_size = world_size;
}

std::optional<JobLog> current_job_log() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  return all.mine.log ? std::optional(all.mine) : std::nullopt;
}

std::shared_ptr<dist::CollectiveLog> job_log() {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  return all.mine.log;
}

void remove_job_log() {
  if (const auto log = job_log())
    if (const std::string path = log->mapping().shared_path(); !path.starts_with("/proc/")) ::unlink(path.c_str());
}

}  // namespace lockstep::python
