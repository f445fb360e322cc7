// Records gloo_trace_rank_0, gloo_trace_rank_1 and gloo_trace_rank_0.json into the folder that LOCKSTEP_RECORD names:
// two processes, of which rank 1 does not call the last all-reduce until both have dumped.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "lockstep/dist.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

TEST(Record, Gloo) {
  const char* const variable = std::getenv("LOCKSTEP_RECORD");
  ASSERT_TRUE(variable) << "LOCKSTEP_RECORD=FOLDER " << "is where the files go";
  const std::string folder = variable;
  testing::spawn_processes(2, [&](int rank, int) {
    at::Tensor weights = torch::ones({256, 64}), counts = torch::ones({3}, torch::kLong);
    dist::all_reduce(weights);
    dist::broadcast(counts, 0);
    dist::all_reduce(weights);
    const std::string name = folder + "/gloo_trace_rank_" + std::to_string(rank), ready = folder + "/dumped";
    const auto dump = [&] {
      std::ofstream(name, std::ios::binary)
          << c10d::dump_fr_trace(/*includeCollectives=*/true, /*includeStackTraces=*/false, /*onlyActive=*/false);
      if (rank == 0) std::ofstream(name + ".json") << c10d::dump_fr_trace_json(true, false);
    };
    if (rank == 0) {
      auto work = dist::all_reduce(weights, dist::ReduceOp::SUM, {}, /*async_op=*/true);
      dump();
      std::ofstream(ready) << "\n";
      work->wait();
      std::filesystem::remove(ready);
    } else {
      dump();
      while (access(ready.c_str(), F_OK) != 0) std::this_thread::yield();
      dist::all_reduce(weights);
    }
  });
}

}  // namespace
}  // namespace lockstep
