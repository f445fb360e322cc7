// What the log of a rank has of its calls, also for another process while the rank is stuck and after it was killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "collectives/dist.h"
#include "collectives/log/collective_log.h"
#include "collectives/session_group.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using testing::run_as_processes;
using testing::spawn_ranks;

TEST(Log, IsReadByAnotherProcessWhileARankIsStuckAndAfterItWasKilled) {
  testing::RankOptions options;
  // The processes run this test, too: the environment names the folder.
  if (!std::getenv("LOCKSTEP_TEST_LOGS"))
    setenv("LOCKSTEP_TEST_LOGS", testing::detail::folder_for_results().c_str(), 1);
  options.log_folder = std::getenv("LOCKSTEP_TEST_LOGS");
  const std::string log_of_zero = options.log_folder + "/log-0";
  const auto outcomes = run_as_processes(
      2,
      [](int rank, int) {
        dist::set_thread_context(7, 3);
        dist::all_reduce(at::ones({2, 3}));
        if (rank == 1) {
          at::Tensor t = at::ones({1});
          dist::recv(t, 0);  // never comes
        }
        dist::broadcast(at::ones({5}, at::kDouble), 1);
      },
      options,
      [&](const std::vector<pid_t>& pids) {
        const auto stuck = [&] {
          struct stat status;
          if (stat(log_of_zero.c_str(), &status) != 0) return false;
          try {
            const auto in_flight = dist::CollectiveLogReader(log_of_zero).in_flight();
            return in_flight.size() == 1 && in_flight[0].op == "broadcast";
          } catch (const dist::Error&) {  // it is being made
            return false;
          }
        };
        while (!stuck()) std::this_thread::yield();
        const dist::CollectiveLogReader reader(log_of_zero);
        EXPECT_EQ(reader.rank(), 0);
        EXPECT_EQ(reader.pid(), pids[0]);
        EXPECT_EQ(reader.progress().at("default"), 2);
        kill(pids[0], SIGKILL);
        kill(pids[1], SIGKILL);
        const auto records = dist::CollectiveLogReader(log_of_zero).last(10);
        ASSERT_EQ(records.size(), 2u);
        EXPECT_EQ(describe(records[0]), "all_reduce float32 [2, 3] SUM");
        EXPECT_EQ(records[0].state, dist::CollectiveState::done);
        EXPECT_EQ(records[0].bytes, 24);
        EXPECT_EQ(records[0].cell, 7);
        EXPECT_EQ(records[0].step, 3);
        EXPECT_GE(records[0].done_ns, records[0].entered_ns);
        EXPECT_EQ(describe(records[1]), "broadcast float64 [5] root 1");
        EXPECT_EQ(records[1].state, dist::CollectiveState::entered);
        EXPECT_EQ(records[1].seq, 2);
        EXPECT_NE(records[1].call_site, 0u);
      });
  std::filesystem::remove_all(options.log_folder);
  unsetenv("LOCKSTEP_TEST_LOGS");
}

__attribute__((noinline)) void call_from_here() {
  dist::barrier();
  asm volatile("");
}

TEST(Log, KnowsWhichCellsCodeCalled) {
  spawn_ranks(1, [](int, int) {
    dist::register_code_range(12, reinterpret_cast<const void*>(&call_from_here), 64);
    call_from_here();
    const auto records = dist::last_collectives(1);
    ASSERT_EQ(records.size(), 1u);
    ASSERT_TRUE(records[0].site_cell);
    EXPECT_EQ(*records[0].site_cell, 12);
    EXPECT_LT(records[0].site_offset, 64u);
    dist::all_gather_object(1);
    EXPECT_FALSE(dist::last_collectives(1)[0].site_cell);
  });
}

TEST(Log, SubGroupsAndPointToPointCountApart) {
  spawn_ranks(2, [](int rank, int) {
    const dist::Group group = dist::new_group();
    for (int i = 0; i < 3; ++i) dist::barrier(group);
    at::Tensor t = at::ones({1});
    rank == 0 ? dist::send(t, 1) : (void)dist::recv(t, 0);
    EXPECT_EQ(dist::progress(), (std::map<std::string, int64_t>{{"default", 1}, {"group_1", 3}}));
    const auto records = dist::last_collectives(5);
    EXPECT_EQ(records[0].op, "new_group");
    EXPECT_EQ(records[1].group, "group_1");
    EXPECT_EQ(records[3].seq, 3);
    EXPECT_EQ(describe(records[4]), rank == 0 ? "send float32 [1] to 1" : "recv float32 [1] from 0");
    EXPECT_TRUE(records[4].point_to_point);
    EXPECT_FALSE(dist::current_collective());
  });
}

}  // namespace
}  // namespace lockstep
