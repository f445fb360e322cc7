// Dumps that the LibTorch of this build writes at this moment: both forms are read, and say the same.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include "inspectors/evidence/flight_recorder.h"
#include "lockstep/dist.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

TEST(FlightRecorderOfLibTorch, IsReadAsPickleAndAsJson) {
  unsetenv("TORCH_FR_BUFFER_SIZE");  // tests with ranks as threads have switched it off
  testing::spawn_processes(2, [](int rank, int) {
    at::Tensor weights = torch::ones({3, 5}, torch::kDouble);
    dist::all_reduce(weights);
    dist::broadcast(weights, 0);
    const Evidence pickle =
        read_flight_recorder(c10d::dump_fr_trace(true, /*includeStackTraces=*/true, false), "pickle", rank);
    const Evidence json = read_flight_recorder(c10d::dump_fr_trace_json(true, false), "json", rank);
    ASSERT_GE(pickle.calls.size(), 2u);
    ASSERT_EQ(pickle.calls.size(), json.calls.size());
    const EvidenceCall &first = pickle.calls[pickle.calls.size() - 2], &last = json.calls.back();
    EXPECT_EQ(first.op, "all_reduce");
    EXPECT_EQ(last.op, "broadcast");
    EXPECT_EQ(last.seq, first.seq + 1);
    EXPECT_EQ(last.input_shapes, (std::vector<std::vector<int64_t>>{{3, 5}}));
    EXPECT_EQ(last.input_dtypes, std::vector<std::string>{"float64"});
    EXPECT_EQ(last.backend, "gloo");
    ASSERT_TRUE(pickle.group(last.group));
    EXPECT_EQ(pickle.group(last.group)->ranks, (std::vector<int>{0, 1}));
    dist::barrier();
  });
}

}  // namespace
}  // namespace lockstep::inspect
