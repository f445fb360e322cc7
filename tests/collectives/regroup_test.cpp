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
using testing::spawn_processes;
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

/// Reconnects without rank 1 of 4: the others are the default group, and count from 0 in it.
void go_on_without_rank_1(int64_t generation) {
  dist::current_context()->set_default_ranks({0, 2, 3});
  dist::regroup(generation, {0, 2, 3});
}

TEST(DefaultRanks, CountFromZero) {
  spawn_ranks(4, [](int rank, int) {
    const dist::Group before = dist::default_group();
    const dist::Group pair = dist::new_group({0, 3}), broken = dist::new_group({1, 2});
    if (rank == 1) return;
    go_on_without_rank_1(1);
    const int number = rank == 0 ? 0 : rank - 1;
    EXPECT_EQ(dist::get_rank(), number);
    EXPECT_EQ(dist::get_world_size(), 3);
    EXPECT_EQ(dist::current_context()->rank(), rank) << "the session's number";
    EXPECT_EQ(dist::all_gather_object(rank), (std::vector<int>{0, 2, 3}));
    at::Tensor from_last = at::full({1}, static_cast<double>(rank));
    dist::broadcast(from_last, 2);
    EXPECT_EQ(from_last.item<double>(), 3);
    EXPECT_THROW(dist::broadcast(from_last, 3), dist::ArgumentError);
    at::Tensor sum = at::ones({1});
    dist::all_reduce(sum, dist::ReduceOp::SUM, before);  // a handle of before is the new group
    EXPECT_EQ(sum.item<double>(), 3);
    EXPECT_EQ(dist::get_process_group_ranks(pair), (std::vector<int>{0, 2}));
    EXPECT_EQ(dist::get_process_group_ranks(broken), (std::vector<int>{-1, 1}));
    EXPECT_EQ(dist::session_ranks(pair), (std::vector<int>{0, 3}));
    const dist::Group last_two = dist::new_group({1, 2});
    EXPECT_EQ(dist::get_rank(last_two), number - 1 < 0 ? -1 : number - 1);
    if (number > 0) dist::barrier(last_two);
    if (number == 1) dist::send(at::full({1}, 5.0), 2);
    if (number == 2) EXPECT_EQ(dist::recv(sum), 1);
    const auto [mine, all] = dist::new_subgroups_by_enumeration({{0, 2}, {1}});
    EXPECT_EQ(dist::get_world_size(mine), number == 1 ? 1 : 2);
    EXPECT_EQ(dist::get_process_group_ranks(mine), number == 1 ? std::vector<int>{1} : (std::vector<int>{0, 2}));
  });
}

// As processes: a rank that is a thread shuts down the connections of the others, too (group_sockets.h), and here one
// goes on while they still connect.
TEST(DefaultRanks, AreThoseOfTheSessionAgain) {
  spawn_processes(4, [](int rank, int size) {
    if (rank != 1) go_on_without_rank_1(1);
    const dist::Group middle = dist::default_group();
    dist::current_context()->set_default_ranks(RankSet::all(size));
    dist::regroup(2, RankSet::all(size));
    EXPECT_EQ(dist::get_rank(), rank);
    at::Tensor sum = at::ones({1});
    dist::all_reduce(sum, dist::ReduceOp::SUM, middle);
    EXPECT_EQ(sum.item<double>(), 4);
    EXPECT_THROW(dist::current_context()->set_default_ranks({9}), dist::ArgumentError);
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
