// Ranks that are aborted leave their collective, with their state, and the others hear who left.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

#include "collectives/dist.h"
#include "collectives/log/collective_log.h"
#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "tests/collectives/stuck_ranks.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_as_processes;
using testing::spawn_processes;
using testing::spawn_ranks;

TEST(Abort, FreesARankThatWaitsForAnother) {
  spawn_processes(3, [](int rank, int size) {
    const dist::Group pair = dist::new_group({0, 2});
    const dist::Group before = dist::default_group();
    at::Tensor state = at::full({3}, static_cast<double>(rank));
    // Rank 1 never comes. The others are aborted one after the other, rank 0 when both sit in the collective: rank 2
    // may hear of that before its own abort.
    const dist::Store store = dist::default_group()->getStore()->clone();
    const auto context = dist::current_context();
    if (rank == 2) {
      const WhenInCollective watch(2, [&] {
        store->set("rank 2", "waits");
        store->wait({"rank 0"});
        context->abort("interrupted");
      });
      EXPECT_THROW(dist::all_reduce(at::ones({100'000})), dist::Error);
    }
    if (rank == 0) {
      const WhenInCollective watch(2, [&] {
        store->wait({"rank 2"});
        context->abort("interrupted");
        store->set("rank 0", "is aborted");
      });
      const auto error = caught<dist::Aborted>([&] { dist::all_reduce(at::ones({100'000})); });
      EXPECT_EQ(error.reason, "interrupted");
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("all_reduce float32 [100000] SUM, #2 of group default"), HasSubstr("interrupted")));
      EXPECT_THAT(caught<dist::Aborted>([&] { dist::barrier(); }).what(), HasSubstr("regroup"));
      EXPECT_THROW(dist::barrier(pair), dist::Aborted);
    }
    EXPECT_EQ(dist::needs_regroup(), rank != 1);
    meet(dist::default_group()->getStore(), "out", rank, size);
    dist::regroup(1, RankSet::all(size));
    EXPECT_FALSE(dist::needs_regroup());
    EXPECT_EQ(dist::progress().at("default"), 2);  // equal on all ranks
    dist::all_reduce(state);
    EXPECT_EQ(state[0].item<float>(), 3);
    EXPECT_EQ(dist::default_group(), before);
    if (rank != 1) dist::all_reduce(state, dist::ReduceOp::SUM, pair);
    if (rank != 1) {
      EXPECT_EQ(state[0].item<float>(), 6);
    }
    EXPECT_EQ(dist::get_group_name(dist::new_group()), "group_2");
    dist::barrier();
  });
}

/// As ranks of different machines are, whose calls somebody else compares.
TEST(Mismatch, IsThrownByRanksThatAreToldOfIt) {
  spawn_processes(2, [](int rank, int size) {
    const auto context = dist::current_context();
    const dist::Store store = dist::default_group()->getStore();
    const auto incarnation = [&] {
      return dist::CollectiveLogReader(context->log()->mapping()).groups().front().incarnation;
    };
    const uint64_t first = incarnation();
    meet(store, std::to_string(first), rank, size);  // it is the same on both
    const dist::CollectiveMismatch mismatch("rank 1 called something else", {});
    EXPECT_FALSE(dist::tell_of_mismatch(first + 1, mismatch));
    if (rank == 0) {  // it waits in one, and then calls another one
      const WhenInCollective watch(1, [&] {
        EXPECT_TRUE(dist::tell_of_mismatch(first, mismatch));
        store->set("rank 0", "is told");
      });
      EXPECT_STREQ(caught<dist::CollectiveMismatch>([] { dist::all_reduce(at::ones({4})); }).what(), mismatch.what());
    } else {
      store->wait({"rank 0"});  // else it may leave the collective before it is told
      EXPECT_TRUE(dist::tell_of_mismatch(first, mismatch));
    }
    EXPECT_STREQ(caught<dist::CollectiveMismatch>([] { dist::barrier(); }).what(), mismatch.what());
    meet(store, "out", rank, size);
    dist::regroup(1, RankSet::all(size));
    EXPECT_NE(incarnation(), first);
    EXPECT_FALSE(dist::tell_of_mismatch(first, mismatch));
    dist::barrier();
  });
}

TEST(Abort, ThePeersHearWhoLeft) {
  const auto outcomes = run_as_processes(3, [](int rank, int) {
    const dist::Store store = dist::default_group()->getStore();
    dist::barrier();
    if (rank == 1) {
      dist::abort("the cell was interrupted");
      store->wait({"saw-0", "saw-2"});
      return;
    }
    try {
      dist::all_reduce(at::ones({10}));
    } catch (const dist::Error&) {
      store->set("saw-" + std::to_string(rank), "it");
      throw;
    }
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].type, "lockstep::dist::PeerLeft") << outcomes[rank];
    EXPECT_THAT(outcomes[rank].error,
                AllOf(HasSubstr("rank 1 left the collective all_reduce float32 [10] SUM, #2 of group default"),
                      HasSubstr("aborted (the cell was interrupted)")));
    EXPECT_THAT(outcomes[rank].error, ::testing::Not(HasSubstr("/pytorch/")));
  }
}

TEST(Abort, FreesReceiversAndFutures) {
  spawn_ranks(2, [](int rank, int size) {
    const auto context = dist::current_context();
    if (rank == 0) {
      at::Tensor tensor = at::ones({4});
      {
        std::thread aborter([context] {
          while (dist::CollectiveLogReader(context->log()->mapping()).in_flight().empty()) std::this_thread::yield();
          context->abort("enough");
        });
        EXPECT_THROW(dist::recv(tensor, 1), dist::Aborted);
        aborter.join();
      }
    }
    const dist::Store store = dist::default_group()->getStore();
    meet(store, "first", rank, size);
    dist::regroup(1, RankSet::all(size));
    dist::barrier();
    if (rank == 0) {
      const WhenInCollective watch(2, [context] { context->abort("enough"); });
      const dist::Work work = dist::all_reduce(at::ones({4}), dist::ReduceOp::SUM, {}, true);
      EXPECT_THROW(work->getFuture()->waitAndThrow(), dist::Aborted);
      EXPECT_THROW(work.wait(), dist::Aborted);
    }
    meet(store, "second", rank, size);
    dist::regroup(2, RankSet::all(size));
    dist::barrier();
  });
}

TEST(Abort, FreesARankThatWaitsInTheStoreForANewGroup) {
  spawn_processes(2, [](int rank, int size) {
    if (rank == 0) {
      const auto context = dist::current_context();
      const WhenInCollective watch(1, [context, rank_thread = gettid()] {
        wait_until_asleep(rank_thread);  // the log has the call a moment before it waits in the store; both must do
        context->abort("enough");
      });
      EXPECT_THROW(dist::new_group(), dist::Aborted);
    }
    dist::regroup(1, RankSet::all(size));
    const dist::Group group = dist::new_group();
    dist::barrier(group);
  });
}

// A store that is a file or memory has no connection to shut.
TEST(Abort, FreesARankThatWaitsInAFileForANewGroup) {
  const std::string folder = testing::detail::folder_for_results();
  spawn_ranks(
      2,
      [&](int rank, int size) {
        dist::init_process_group({.init_method = "file://" + folder + "/store", .world_size = size, .rank = rank});
        int generation = 0;
        for (const bool asleep : {false, true}) {
          if (rank == 0) {
            const WhenInCollective watch(dist::progress().at("default") + 1,
                                         [asleep, rank_thread = gettid(), context = dist::current_context()] {
                                           if (asleep) wait_until_asleep(rank_thread);
                                           context->abort("enough");
                                         });
            EXPECT_THROW(dist::new_group(), dist::Aborted);
          }
          dist::regroup(++generation, RankSet::all(size));
          const dist::Group group = dist::new_group();
          dist::barrier(group);
        }
        dist::destroy_process_group();
      },
      {.initialise = false});
  std::filesystem::remove_all(folder);
}

TEST(Abort, HundredTimesInARow) {
  spawn_ranks(2, [](int rank, int size) {
    const auto context = dist::current_context();
    for (int i = 1; i <= 100; ++i) {
      if (rank == 0) {
        const WhenInCollective watch(dist::progress().at("default") + 1, [context] { context->abort("again"); });
        EXPECT_THROW(dist::barrier(), dist::Aborted);
      }
      meet(dist::default_group()->getStore(), "round-" + std::to_string(i) + "-", rank, size);
      dist::regroup(i, RankSet::all(size));
    }
    dist::barrier();
  });
}

}  // namespace
}  // namespace lockstep
