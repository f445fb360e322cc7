// Ranks as processes of one benchmark, and calls that take turns on them: what is compared is measured in one run.
#pragma once
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "collectives/dist.h"
#include "collectives/transport/tcp_store.h"

extern char** environ;

namespace lockstep::benchmark {

/// Calls `function` with this rank's number on `world_size` ranks of a default group over the loopback interface, with
/// one thread each: this process is rank 0, and the others are this program again, with the same arguments; the
/// environment has their rank.
inline int run_as_ranks(int world_size, char** arguments, const std::function<void(int rank)>& function) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  at::set_num_threads(1);
  const char* port = std::getenv("BENCHMARK_PORT");
  const int rank = port ? std::atoi(std::getenv("BENCHMARK_RANK")) : 0;
  const dist::TcpStore store =
      port ? dist::connect_store("127.0.0.1", std::atoi(port)) : dist::serve_store("127.0.0.1", 0);
  std::vector<pid_t> others;
  if (!port) {
    setenv("BENCHMARK_PORT", std::to_string(store->getPort()).c_str(), 1);
    for (int other = 1; other < world_size; ++other) {
      setenv("BENCHMARK_RANK", std::to_string(other).c_str(), 1);
      pid_t child = 0;
      if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ) != 0) return 1;
      others.push_back(child);
    }
  }
  dist::InitOptions options{.world_size = world_size, .rank = rank, .store = store};
  options.check_collectives = false;  // as c10d's own collectives are
  dist::init_process_group(options);
  function(rank);
  dist::barrier();
  dist::destroy_process_group();
  int failed = 0;
  for (const pid_t child : others) {
    int status = 0;
    waitpid(child, &status, 0);
    failed |= status;
  }
  return failed ? 1 : 0;
}

using Calls = std::vector<std::pair<std::string, std::function<void()>>>;

struct Seconds {
  double median, best;  // best: what other programs have disturbed least
};

/// The seconds from when all ranks begin a call until the last of them is done with it, over `rounds`, in which the
/// calls take turns, each time beginning with the next one, after one round that does not count. Ranks begin at one
/// time of the clock that they share: left to a barrier they begin one after the other, and each has the memory to
/// itself for a while. Collective.
inline std::map<std::string, Seconds> in_turns(int rounds, const Calls& calls) {
  using Clock = std::chrono::steady_clock;
  const auto latest = [](Clock::time_point time) {
    const at::Tensor count = at::full({1}, static_cast<int64_t>(time.time_since_epoch().count()), at::kLong);
    dist::all_reduce(count, dist::ReduceOp::MAX);
    return Clock::time_point(Clock::duration(count.item<int64_t>()));
  };
  std::map<std::string, std::vector<double>> seconds;
  for (int round = 0; round <= rounds; ++round) {
    for (size_t turn = 0; turn < calls.size(); ++turn) {
      const auto& [name, call] = calls[(turn + static_cast<size_t>(round)) % calls.size()];
      const auto start = latest(Clock::now() + std::chrono::milliseconds(1));
      while (Clock::now() < start) {
      }
      call();
      const auto end = latest(Clock::now());
      if (round > 0) seconds[name].push_back(std::chrono::duration<double>(end - start).count());
    }
  }
  std::map<std::string, Seconds> result;
  for (auto& [name, values] : seconds) {
    std::sort(values.begin(), values.end());
    result[name] = {.median = values[values.size() / 2], .best = values.front()};
  }
  return result;
}

/// `result` with the medians, each under its name and "_s", and the best, "_best_s".
inline nlohmann::json with_seconds(nlohmann::json result, const std::map<std::string, Seconds>& seconds) {
  for (const auto& [name, each] : seconds) {
    result[name + "_s"] = each.median;
    result[name + "_best_s"] = each.best;
  }
  return result;
}

}  // namespace lockstep::benchmark
