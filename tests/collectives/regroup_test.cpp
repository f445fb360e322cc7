// Groups work again after a regroup: with all ranks, or without one that has died.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "collectives/dist.h"
#include "collectives/log/meetings.h"
#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "tests/collectives/stuck_ranks.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_as_processes;
using testing::run_as_threads;
using testing::spawn_ranks;

TEST(Regroup, WithoutARankSaysWhoIsMissing) {
  const auto outcomes = run_as_threads(2, [](int rank, int size) {
    if (rank == 0) dist::regroup(1, RankSet::all(size), std::chrono::milliseconds(200));
  });
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 did not come within 0.2 s"));
}

TEST(Regroup, RefusesAnOldGenerationAndAGroupWithoutThisRank) {
  spawn_ranks(1, [](int, int) {
    dist::regroup(3, {0});
    EXPECT_THROW(dist::regroup(3, {0}), dist::ArgumentError);
    EXPECT_THROW(dist::regroup(4, {1}), dist::ArgumentError);
  });
}

TEST(Regroup, LeavesOutAGroupThatNotAllRanksHaveMade) {
  spawn_ranks(2, [](int rank, int size) {
    const auto context = dist::current_context();
    if (rank == 0) {
      const WhenInCollective watch(1, [context] { context->abort("stop"); });
      EXPECT_THROW(dist::new_group(), dist::Aborted);
    }
    dist::regroup(1, RankSet::all(size));
    const dist::Group group = dist::new_group();  // the same name on both
    EXPECT_EQ(dist::all_gather_object(dist::get_group_name(group)), std::vector<std::string>(2, "group_2"));
    dist::barrier(group);
  });
}

TEST(Regroup, NeedsNoOtherForAGroupThatStaysOut) {
  spawn_ranks(2, [](int rank, int size) {
    if (rank == 0) {
      const dist::Rejoining alone;
      dist::new_group();
    }
    dist::regroup(1, RankSet::all(size));
    EXPECT_FALSE(dist::needs_regroup());
  });
}

TEST(Death, OfARankIsNamedAndTheOthersGoOn) {
  const auto outcomes = run_as_processes(3, [](int rank, int) {
    const dist::Group pair = dist::new_group({0, 2});
    at::Tensor state = at::full({3}, static_cast<double>(rank));
    dist::barrier();
    if (rank == 1) kill(getpid(), SIGKILL);
    const auto error = caught<dist::PeerLeft>([] { dist::all_reduce(at::ones({10})); });
    EXPECT_EQ(error.ranks, RankSet({1}));
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 left the collective all_reduce"), HasSubstr("has died")));

    dist::regroup(1, {0, 2});
    EXPECT_FALSE(dist::needs_regroup());
    EXPECT_THAT(caught<dist::Error>([] { dist::barrier(); }).what(),
                AllOf(HasSubstr("needs rank 1"), HasSubstr("new_group")));
    dist::all_reduce(state, dist::ReduceOp::SUM, pair);
    EXPECT_EQ(state[0].item<float>(), 2);
    const dist::Group live = dist::new_group({0, 2});
    dist::all_reduce(state, dist::ReduceOp::SUM, live);
    EXPECT_EQ(state[0].item<float>(), 4);
    EXPECT_THROW(dist::new_group({0, 1}), dist::ArgumentError);
  });
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0];
  EXPECT_TRUE(outcomes[2].ok()) << outcomes[2];
}

}  // namespace
}  // namespace lockstep
