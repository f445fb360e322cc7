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

}  // namespace
}  // namespace lockstep
