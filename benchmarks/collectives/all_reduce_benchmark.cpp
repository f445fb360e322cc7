// An all_reduce of 8 bytes on two ranks (two processes over the loopback interface): Gloo bare, watched, and watched with the
// comparison of ranks. The variants take turns, block by block, since a shared machine is not equally fast at all times.
// Prints one JSON line: medians, and quartiles, in microseconds.
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "collectives/dist.h"
#include "collectives/rank_context.h"
#include "collectives/transport/gloo_connector.h"
#include "collectives/transport/tcp_store.h"

extern char** environ;

namespace {

using namespace lockstep::dist;

constexpr int kBlocks = 60, kCallsPerBlock = 200, kRanks = 2;

c10::intrusive_ptr<c10d::Backend> bare_gloo(const Store& store, int rank,
                                            std::unique_ptr<BackendConnector>& connector) {
  connector =
      make_gloo_connector({.name = "bare", .group_rank = rank, .ranks = {0, 1}, .timeout = std::chrono::minutes(1)});
  const std::string mine = connector->announcement();
  store->set("bare-" + std::to_string(rank), mine);
  std::vector<std::string> peers{store->get_to_str("bare-0"), store->get_to_str("bare-1")};
  return connector->connect(c10::make_intrusive<c10d::PrefixStore>("bare", store), peers, std::chrono::minutes(1));
}

std::shared_ptr<RankContext> watched(const Store& store, int rank, const std::string& name, bool check) {
  return std::make_shared<RankContext>(ContextOptions{.rank = rank,
                                                      .world_size = kRanks,
                                                      .store = c10::make_intrusive<c10d::PrefixStore>(name, store),
                                                      .check_collectives = check});
}

int run(int rank, int port, pid_t child) {
  const TcpStore store = rank == 0 ? serve_store("127.0.0.1", 0) : connect_store("127.0.0.1", port);
  if (rank == 0) {
    std::string program = "/proc/self/exe", argument = std::to_string(store->getPort());
    char* arguments[] = {program.data(), argument.data(), nullptr};
    if (posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) != 0) return 1;
  }
  std::unique_ptr<BackendConnector> connector;
  const auto bare = bare_gloo(store, rank, connector);
  const auto logged = watched(store, rank, "logged", false), compared = watched(store, rank, "compared", true);
  const std::map<std::string, c10::intrusive_ptr<c10d::Backend>> variants{
      {"bare", bare}, {"logged", logged->find({}).backend}, {"logged_and_compared", compared->find({}).backend}};

  std::vector<at::Tensor> tensors{at::zeros({2})};
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  std::map<std::string, std::vector<double>> microseconds;
  for (int block = 0; block < kBlocks; ++block) {
    for (const auto& [name, backend] : variants) {
      for (int call = 0; call < kCallsPerBlock; ++call) {
        const int64_t start = lockstep::dist::monotonic_ns();
        backend->allreduce(tensors, options)->wait();
        if (block > 0) microseconds[name].push_back((lockstep::dist::monotonic_ns() - start) / 1000.0);
      }
    }
  }
  if (rank == 0) {
    nlohmann::json result{{"benchmark", "all_reduce of 8 bytes, 2 ranks"}, {"unit", "us"}};
    for (auto& [name, values] : microseconds) {
      std::sort(values.begin(), values.end());
      result[name] = {{"median", values[values.size() / 2]},
                      {"quartiles", {values[values.size() / 4], values[values.size() * 3 / 4]}},
                      {"calls", values.size()}};
    }
    std::printf("%s\n", result.dump().c_str());
  }
  // Both ranks are through before one closes its connections.
  bare->barrier({})->wait();
  if (rank == 0) waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  at::set_num_threads(1);
  return count > 1 ? run(1, std::atoi(arguments[1]), 0) : run(0, 0, 0);
}
