// A rank that waits for one that has left the cell reports it.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/dist.h"
#include "collectives/log/collective_log.h"
#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "tests/collectives/stuck_ranks.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using testing::spawn_ranks;

struct Reports {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<dist::CollectiveRecord, RankSet>> all;
  void add(const dist::CollectiveRecord& record, const RankSet& missing) {
    const std::lock_guard lock(mutex);
    all.emplace_back(record, missing);
    changed.notify_all();
  }
  void wait_for(size_t count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return all.size() >= count; });
  }
};

TEST(HangWatch, ReportsARankThatIsStuckAlreadyAndOneThatEntersLater) {
  spawn_ranks(3, [](int rank, int size) {
    const auto context = dist::current_context();
    const auto store = dist::default_group()->getStore();
    dist::set_thread_context(4);
    Reports reports;
    dist::set_waiting_callback([&](const auto& record, const RankSet& missing) { reports.add(record, missing); });
    dist::barrier();
    if (rank != 2) {
      // Rank 2 has left the cell; rank 0 hears of it while it is stuck, rank 1 before it enters.
      if (rank == 1) context->watch().peers_left(4, {2}, {{"default", 1}});
      std::thread hub([&] {
        if (rank == 0) {
          while (dist::CollectiveLogReader(context->log()->mapping()).in_flight().empty()) std::this_thread::yield();
          context->watch().peers_left(3, {2}, {{"default", 0}});  // of an older cell: nothing to say
          context->watch().peers_left(4, {1}, {{"default", 2}});  // rank 1 has entered #2
          context->watch().peers_left(4, {2}, {{"default", 1}});
          context->watch().peers_left(4, {2}, {{"default", 1}});  // once is enough
        }
        reports.wait_for(1);
        meet(store, "reported", rank, 2);  // an abort throws the other out, too
        context->abort("a hang");
      });
      EXPECT_ANY_THROW(dist::all_reduce(at::ones({10})));
      hub.join();
      ASSERT_EQ(reports.all.size(), 1u);
      EXPECT_EQ(reports.all[0].second, RankSet({2}));
      EXPECT_EQ(dist::to_finding_op(reports.all[0].first).seq, 2);
      EXPECT_EQ(reports.all[0].first.cell, 4);
    }
    meet(store, "out", rank, size);
    dist::regroup(1, RankSet::all(size));
    // The next cell: what the ranks left behind in the last one does not count.
    dist::set_thread_context(5);
    dist::barrier();
    EXPECT_EQ(reports.all.size(), rank == 2 ? 0u : 1u);
  });
}

/// Rank 1 waits for rank 0 in a broadcast when rank 2 has left the cell without it.
void wait_for_a_root(const std::string& backend, bool root_leaves) {
  spawn_ranks(
      3,
      [&](int rank, int size) {
        const auto context = dist::current_context();
        const auto store = dist::default_group()->getStore();
        dist::set_thread_context(4);
        Reports reports;
        dist::set_waiting_callback([&](const auto& record, const RankSet& missing) { reports.add(record, missing); });
        dist::barrier();
        at::Tensor tensor = at::full({10}, rank);
        if (rank == 1) {
          std::thread hub([&] {
            while (dist::CollectiveLogReader(context->log()->mapping()).in_flight().empty()) std::this_thread::yield();
            context->watch().peers_left(4, {2}, {{"default", 1}});
            if (root_leaves) context->watch().peers_left(4, {0}, {{"default", 1}});
            store->set("told", "");
          });
          dist::broadcast(tensor, 0);
          hub.join();
        } else {
          store->wait({"told"}, std::chrono::minutes(2));
          dist::broadcast(tensor, 0);
        }
        EXPECT_EQ(tensor[0].item<int>(), 0);
        meet(store, "out", rank, size);
        if (rank != 1) return;
        ASSERT_EQ(reports.all.size(), root_leaves ? 1u : 0u);
        if (root_leaves) EXPECT_EQ(reports.all[0].second, RankSet{0});
      },
      testing::RankOptions{.backend = backend});
}

TEST(HangWatch, SaysNothingOfRanksThatTheCollectiveDoesNotNeed) {
  for (const char* backend : {"gloo", "shared_memory"})  // in Gloo's tree, ranks 1 and 2 have no children
    for (const bool root_leaves : {false, true}) {
      SCOPED_TRACE(::testing::Message() << backend << ", root leaves: " << root_leaves);
      wait_for_a_root(backend, root_leaves);
    }
}

}  // namespace
}  // namespace lockstep
