#include "worker/nccl_evidence.h"

#include <dlfcn.h>
#include <time.h>

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "collectives/session_group.h"
#include "collectives/watch/device_queries.h"
#include "inspectors/evidence/ras.h"

namespace lockstep::worker {
namespace {

/// This is c10d::dump_nccl_trace_json(bool includeCollectives, bool onlyActive) of ProcessGroupNCCL.hpp. A worker does
/// not link the library that has it; null if no plug-in has loaded that.
using DumpRecorder = std::string (*)(bool, bool);
DumpRecorder find_recorder() {
  void* const library = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return nullptr;
  void* const function = ::dlsym(library, "_ZN4c10d20dump_nccl_trace_jsonB5cxx11Ebb");
  ::dlclose(library);  // what loaded it keeps it
  return reinterpret_cast<DumpRecorder>(function);
}

/// Whether RAS runs. Otherwise what answers at its address is another job's.
bool ras_runs() {
  const char* const enabled = std::getenv("NCCL_RAS_ENABLE");
  return enabled && std::string_view(enabled) == "1";
}

int64_t realtime_ns() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// While a hang is looked into, questions follow one another quickly.
constexpr std::chrono::seconds kFresh{1};

/// The gathering thread holds it, too, and can outlive the question.
struct Gathered {
  std::mutex mutex;
  std::condition_variable changed;
  bool gathering = false;
  std::chrono::steady_clock::time_point gathered_at{};
  protocol::question::NcclEvidence evidence;  // errors: each change of `last_error`
  std::map<std::string, int> last_error;  // group → c10d::ErrorType when it was seen last
};

void gather(const std::shared_ptr<Gathered>& gathered, DumpRecorder recorder, int rank, bool asks_ras) {
  const auto publish = [&](auto&& change) {
    const std::lock_guard lock(gathered->mutex);
    change(*gathered);
  };
  publish([](Gathered& all) { all.evidence.problem.clear(); });
  try {
    // The dump has completed ones, too: a rank that is ahead of the others has them.
    std::string dump;
    dist::query_devices([&] { dump = recorder(/*includeCollectives=*/true, /*onlyActive=*/false); });
    publish([&](Gathered& all) { all.evidence.recorder = std::move(dump); });
  } catch (const std::exception& error) {
    publish([&](Gathered& all) { all.evidence.problem = std::string("the Flight Recorder: ") + error.what(); });
  }
  for (const auto& [group, error] : dist::communicator_errors())
    publish([&](Gathered& all) {
      if (const auto [known, fresh] = all.last_error.try_emplace(group, 0);
          std::exchange(known->second, error) == error)
        return;
      all.evidence.errors +=
          nlohmann::json{
              {"rank", rank}, {"group", group}, {"time_ns", realtime_ns()}, {"source", "c10d"}, {"error", error}}
              .dump() +
          "\n";
    });
  if (asks_ras && ras_runs()) {
    try {
      std::string answer = inspect::ras_answer();
      publish([&](Gathered& all) { all.evidence.ras = std::move(answer); });
    } catch (const std::exception& error) {
      publish([&](Gathered& all) { all.evidence.problem = error.what(); });
    }
  }
  publish([](Gathered& all) {
    all.gathering = false;
    all.gathered_at = std::chrono::steady_clock::now();
  });
  gathered->changed.notify_all();
}

}  // namespace

std::optional<protocol::question::NcclEvidence> nccl_evidence(int rank, bool asks_ras,
                                                              std::chrono::milliseconds patience) {
  static const auto gathered = std::make_shared<Gathered>();
  const DumpRecorder recorder = find_recorder();
  if (!recorder) return std::nullopt;
  std::unique_lock lock(gathered->mutex);
  const bool fresh = std::chrono::steady_clock::now() - gathered->gathered_at < kFresh;
  if (!fresh && !std::exchange(gathered->gathering, true))
    std::thread([all = gathered, recorder, rank, asks_ras] { gather(all, recorder, rank, asks_ras); }).detach();
  gathered->changed.wait_for(lock, patience, [] { return !gathered->gathering; });
  return gathered->evidence;
}

}  // namespace lockstep::worker
