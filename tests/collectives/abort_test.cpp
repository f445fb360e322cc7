// Ranks that are stuck, die, or are aborted: the others get out with their state, hear who left, and go on after a
// regroup.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <mutex>

#include "collectives/dist.h"
#include "collectives/log/collective_log.h"
#include "collectives/rank_context.h"
#include "collectives/session_group.h"
#include "collectives/transport/group_sockets.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_as_processes;
using testing::run_as_threads;
using testing::spawn_processes;
using testing::spawn_ranks;

// Runs on another thread when the rank's thread sits in its `count`-th collective.
class WhenInCollective {
 public:
  WhenInCollective(int64_t count, std::function<void()> action)
      : thread_([this, context = dist::current_context(), count, action = std::move(action)] {
          const dist::CollectiveLogReader log(context->log()->mapping());
          const auto there = [&] {
            const auto in_flight = log.in_flight();
            return !in_flight.empty() && in_flight.front().seq >= count;
          };
          while (!there()) {
            if (over_) return;  // the collective has ended unseen: the test's expectations say so
            std::this_thread::yield();
          }
          action();
        }) {}
  ~WhenInCollective() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

template <typename Error, typename Call>
Error caught(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("nothing was thrown");
}

// What the session does between two cells: nobody regroups before all have left their collectives.
void meet(const dist::Store& store, const std::string& where, int rank, int size) {
  store->set(where + std::to_string(rank), "here");
  for (int each = 0; each < size; ++each) store->wait({where + std::to_string(each)});
}

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
      const WhenInCollective watch(1, [context] {
        usleep(50'000);  // the log has the call a moment before it waits in the store; both moments must do
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
        for (const useconds_t delay : {0, 100'000}) {
          if (rank == 0) {
            const WhenInCollective watch(dist::progress().at("default") + 1,
                                         [delay, context = dist::current_context()] {
                                           usleep(delay);  // before it waits, and while it does
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
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto outcomes = run_as_threads(
      2,
      [&](int rank, int world_size) {
        dist::init_process_group(
            dist::InitOptions{.connect_timeout = kConnecting, .world_size = world_size, .rank = rank, .store = store});
        at::Tensor tensor = at::full({3}, rank);
        if (rank == 1) {
          std::this_thread::sleep_for(kConnecting + std::chrono::seconds(1));  // healthy, only late
          dist::send(tensor, 0);
        } else {
          dist::recv(tensor, 1);
          EXPECT_EQ(tensor[0].item<int64_t>(), 1);
        }
      },
      options);
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

// ---- the log while a rank is stuck, and afterwards ---------------------------------------------------------------

TEST(Log, IsReadByAnotherProcessWhileARankIsStuckAndAfterItWasKilled) {
  testing::RankOptions options;
  // The processes run this test, too: the folder is told to them by the environment.
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
        while (!stuck()) usleep(2'000);
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

// ---- proven hangs -------------------------------------------------------------------------------------------------

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
      if (rank == 1) context->watch().peer_left(4, 2, {{"default", 1}});
      std::thread hub([&] {
        if (rank == 0) {
          while (dist::CollectiveLogReader(context->log()->mapping()).in_flight().empty()) std::this_thread::yield();
          context->watch().peer_left(3, 2, {{"default", 0}});  // of an older cell: nothing to say
          context->watch().peer_left(4, 1, {{"default", 2}});  // rank 1 has entered #2
          context->watch().peer_left(4, 2, {{"default", 1}});
          context->watch().peer_left(4, 2, {{"default", 1}});  // once is enough
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

// ---- who listens ---------------------------------------------------------------------------------------------------

TEST(Listeners, AreOnTheLoopbackInterfaceOnly) {
  spawn_processes(2, [](int, int) {
    const dist::Group group = dist::new_group();
    dist::barrier(group);
    int listening = 0;
    for (const dist::TcpSocket& socket : dist::open_tcp_sockets()) {
      if (!socket.listening) continue;
      ++listening;
      EXPECT_THAT(socket.local, ::testing::StartsWith("[127.0.0.1]:"));
    }
    EXPECT_EQ(listening, 2);  // one for each group
  });
}

TEST(Listeners, RankZerosStoreListensWhereMasterAddrSays) {
  spawn_processes(2,
                  [](int rank, int) {
                    // The port of the test's own store + an address of its own: 127.0.0.2 is free there.
                    setenv("MASTER_ADDR", "127.0.0.2", 1);
                    setenv("MASTER_PORT", std::getenv("LOCKSTEP_TEST_PORT"), 1);
                    setenv("RANK", std::to_string(rank).c_str(), 1);
                    setenv("WORLD_SIZE", "2", 1);
                    dist::init_process_group();
                    dist::barrier();
                    for (const dist::TcpSocket& socket : dist::open_tcp_sockets())
                      if (socket.listening) {
                        EXPECT_THAT(socket.local, ::testing::StartsWith("[127.0.0."));
                      }
                    dist::barrier();
                  },
                  {.initialise = false});
}

}  // namespace
}  // namespace lockstep
