// Time limits of groups, of one wait and of connecting.
#include <gmock/gmock.h>

#include <chrono>

#include "collectives/dist.h"
#include "tests/collectives/stuck_ranks.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_as_threads;
using testing::spawn_ranks;

TEST(TimeLimit, NamesTheRanksThatNeverCame) {
  testing::RankOptions options;
  options.timeout = std::chrono::seconds(2);
  const auto outcomes = run_as_threads(
      2,
      [](int rank, int) {
        const dist::Store store = dist::default_group()->getStore();
        dist::barrier();
        if (rank == 1) {
          store->wait({"timed out"});
          return;
        }
        const auto error = caught<dist::TimedOut>([] { dist::all_reduce(at::ones({10})); });
        EXPECT_EQ(error.missing, RankSet({1}));
        EXPECT_THAT(error.what(), AllOf(HasSubstr("2 s"), HasSubstr("rank 1 never called it")));
        store->set("timed out", "yes");
      },
      options);
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0];
}

TEST(TimeLimit, OfOneWaitLeavesTheWorkGoingOn) {
  spawn_ranks(2, [](int rank, int) {
    at::Tensor tensor = at::ones({10});
    if (rank == 0) {
      const dist::Work work = dist::all_reduce(tensor, dist::ReduceOp::SUM, {}, true);
      EXPECT_THROW(work.wait(std::chrono::milliseconds(50)), dist::TimedOut);
      dist::send(at::ones({1}), 1);
      work.wait();
    } else {
      at::Tensor signal = at::ones({1});
      dist::recv(signal, 0);
      dist::all_reduce(tensor);
    }
    EXPECT_EQ(tensor[0].item<float>(), 2);
  });
}

// Gloo's own limit of a send or a receive is that of connecting.
TEST(TimeLimit, OfConnectingIsNotThatOfReceiving) {
  constexpr std::chrono::seconds kConnecting(5);
  testing::RankOptions options;
  options.initialise = false;
  const dist::Store store = c10::make_intrusive<c10d::HashStore>();
  const auto outcomes = run_as_threads(
      2,
      [&](int rank, int world_size) {
        dist::init_process_group(
            dist::InitOptions{.connect_timeout = kConnecting, .world_size = world_size, .rank = rank, .store = store});
        at::Tensor tensor = at::full({3}, rank);
        if (rank == 1) {
          store->wait({"has waited longer than that"});  // healthy, only late
          dist::send(tensor, 0);
        } else {
          const dist::Work work = dist::irecv(tensor, 1);
          EXPECT_THROW(work.wait(kConnecting + std::chrono::seconds(1)), dist::TimedOut);
          store->set("has waited longer than that", "yes");
          work.wait();
          EXPECT_EQ(tensor[0].item<int64_t>(), 1);
        }
      },
      options);
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

}  // namespace
}  // namespace lockstep
