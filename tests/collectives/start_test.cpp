// How ranks come together: again on the same store, after a rank was replaced, on several machines, within the time
// they are given; and what becomes of them when the store is gone.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <future>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "collectives/start_claim.h"
#include "tests/support/silent_listener.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

using dist::InitOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kNever;
using testing::Outcome;
using testing::spawn_ranks;

const testing::RankOptions kNotInitialised{.initialise = false};

/// As a rank of its own; what it throws is kept.
Outcome as_rank(const std::function<void()>& call) {
  return testing::run_as_threads(1, [&](int, int) { call(); }, kNotInitialised).front();
}

struct Folder {
  ~Folder() { std::filesystem::remove_all(path); }
  std::string store() const { return "file://" + path + "/store"; }
  const std::string path = testing::detail::folder_for_results();
};

/// Runs `call` in a child process and leaves it there, alive, until it is killed.
struct Child {
  explicit Child(const std::function<void()>& call) {
    int done[2];
    if (pipe(done) != 0) throw std::runtime_error("no pipe");
    pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      call();
      (void)!write(done[1], "x", 1);
      while (true) pause();
    }
    close(done[1]);
    char byte;
    (void)!read(done[0], &byte, 1);
    close(done[0]);
  }
  ~Child() { end(); }
  void end() {
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = -1;
  }
  pid_t pid = -1;
};

void claim_for_ever(const std::string& file, int rank) {
  const dist::Store store = c10::make_intrusive<c10d::FileStore>(file, 2);
  new dist::StartClaim(store, rank, RankSet::all(2));
}

TEST(Start, ARankThatWasReplacedMeetsTheOthers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto start = [&](int rank) {
    dist::init_process_group(
        InitOptions{.connect_timeout = seconds(20), .world_size = 2, .rank = rank, .store = store});
    dist::barrier();
    dist::destroy_process_group();
  };
  // Rank 0 stays; each time rank 1 is another one, which knows nothing of earlier starts.
  std::vector<Outcome> replaced;
  std::thread others([&] {
    for (int i = 0; i < 3; ++i) replaced.push_back(as_rank([&] { start(1); }));
  });
  const Outcome stays = as_rank([&] {
    for (int i = 0; i < 3; ++i) start(0);
  });
  others.join();
  EXPECT_TRUE(stays.ok()) << stays;
  for (const Outcome& each : replaced) EXPECT_TRUE(each.ok()) << each;
}

TEST(Start, ThePlaceOfAProcessThatDiedMeanwhileIsFree) {
  const Folder folder;
  {
    const Child died([&] { claim_for_ever(folder.path + "/store", 1); });
  }
  spawn_ranks(
      2,
      [&](int rank, int size) {
        dist::init_process_group(InitOptions{
            .init_method = folder.store(), .connect_timeout = seconds(20), .world_size = size, .rank = rank});
        dist::barrier();
      },
      kNotInitialised);
}

TEST(Start, TwoLivingProcessesAsOneRankAreAnError) {
  const Folder folder;
  const Child other([&] { claim_for_ever(folder.path + "/store", 1); });
  const Outcome outcome = as_rank([&] {
    dist::init_process_group(
        InitOptions{.init_method = folder.store(), .connect_timeout = seconds(20), .world_size = 2, .rank = 1});
  });
  EXPECT_THAT(outcome.error,
              AllOf(HasSubstr("two processes came as rank 1"), HasSubstr("process " + std::to_string(other.pid))));
}

TEST(Start, ThatFailedCanBeTriedAgain) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto start = [&](int rank, milliseconds limit) {
    dist::init_process_group(InitOptions{.connect_timeout = limit, .world_size = 2, .rank = rank, .store = store});
  };
  const Outcome outcome = as_rank([&] {
    EXPECT_THROW(start(0, milliseconds(200)), dist::Error);
    std::thread other([&] {
      const Outcome theirs = as_rank([&] {
        start(1, seconds(20));
        dist::barrier();
      });
      EXPECT_TRUE(theirs.ok()) << theirs;
    });
    EXPECT_NO_THROW({
      start(0, seconds(20));
      dist::barrier();
    });
    other.join();
  });
  EXPECT_TRUE(outcome.ok()) << outcome;
}

TEST(Start, ConnectTimeoutIsForTheStoreToo) {
  // A port that nobody listens on, and nobody else gets.
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const Outcome outcome = as_rank([&] {
    dist::init_process_group(InitOptions{.init_method = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port)),
                                         .connect_timeout = seconds(1),
                                         .world_size = 2,
                                         .rank = 1});
  });
  EXPECT_THAT(outcome.error, HasSubstr("can't be reached"));
  close(fd);
}

TEST(Start, SaysWhatIsMissing) {
  const auto error = [](InitOptions options) { return as_rank([&] { dist::init_process_group(options); }).error; };
  EXPECT_THAT(error({.init_method = "tcp://127.0.0.1:29500"}),
              AllOf(HasSubstr("tcp://127.0.0.1:29500"), HasSubstr("InitOptions::rank"),
                    HasSubstr("RANK and WORLD_SIZE"), ::testing::Not(HasSubstr("is set, but"))));
  EXPECT_THAT(error({.store = c10::make_intrusive<c10d::HashStore>()}),
              AllOf(HasSubstr("a store"), ::testing::Not(HasSubstr("is set, but"))));
  EXPECT_THAT(error({.init_method = "tcp://127.0.0.1:29500", .rank = 0}),
              HasSubstr("InitOptions::rank is set, but WORLD_SIZE is not (nor InitOptions::world_size)"));
  EXPECT_THAT(error({.init_method = "tcp://127.0.0.1:29500", .world_size = 2}),
              HasSubstr("InitOptions::world_size is set, but RANK is not (nor InitOptions::rank)"));
  EXPECT_THAT(error({.init_method = "tcp://127.0.0.1:29500", .world_size = 2, .rank = 2}),
              HasSubstr("InitOptions::rank is 2, but InitOptions::world_size is 2"));
}

// ---- several machines ----------------------------------------------------------------------------------------------

/// Runs `ip` with these words; whether it succeeded.
bool ip(std::vector<std::string> words) {
  words.insert(words.begin(), "ip");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawnp(&pid, "ip", nullptr, nullptr, arguments.data(), environ) != 0) return false;
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Each rank in a network of its own, as on two machines that one cable joins. They share a folder.
TEST(Start, OnTwoMachinesThroughAFileOrAStore) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make networks";
  const auto outcomes = testing::run_as_processes(
      2,
      [](int rank, int size) {
        const dist::Store store = dist::connect_store("127.0.0.1", std::atoi(std::getenv("LOCKSTEP_TEST_PORT")));
        const std::string own = std::to_string(rank), other = std::to_string(1 - rank);
        // Of this thread, and those that it starts from now on.
        if (unshare(CLONE_NEWNET) != 0 || !ip({"link", "set", "lo", "up"})) throw dist::Error("skip: no networks here");
        store->set("pid-" + own, std::to_string(getpid()));
        if (rank == 0) {
          const bool made = ip(
              {"link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns", store->get_to_str("pid-1")});
          store->set("cable", made ? "made" : "none");
        }
        if (store->get_to_str("cable") != "made") throw dist::Error("skip: no veth here");
        const std::string name = "cable" + own;
        ASSERT_TRUE(ip({"addr", "add", "10.213.7." + std::to_string(rank + 1) + "/24", "dev", name}));
        ASSERT_TRUE(ip({"link", "set", name, "up"}));
        store->set("up-" + own, "yes");
        store->wait({"up-" + other});
        setenv("GLOO_SOCKET_IFNAME", name.c_str(), 1);
        dist::TcpStore reachable;
        if (rank == 0) {
          reachable = dist::serve_store("10.213.7.1", 0);
          store->set("port", std::to_string(reachable->getPort()));
        } else {
          reachable = dist::connect_store("10.213.7.1", std::stoi(store->get_to_str("port")), seconds(60));
        }
        for (const bool through_file : {true, false}) {
          InitOptions options{.connect_timeout = seconds(60), .world_size = size, .rank = rank};
          if (through_file)
            options.init_method = std::string("file://") + std::getenv("LOCKSTEP_TEST_FOLDER") + "/store";
          else
            options.store = reachable;
          dist::init_process_group(options);
          at::Tensor tensor = at::full({3}, static_cast<double>(rank + 1));
          dist::all_reduce(tensor);
          EXPECT_EQ(tensor[0].item<float>(), 3);
          dist::barrier(dist::new_group());
          dist::barrier();
          dist::destroy_process_group();
        }
        store->set("done-" + own, "yes");
        store->wait({"done-" + other});  // rank 0 holds what rank 1 still uses
      },
      kNotInitialised);
  for (const Outcome& outcome : outcomes)
    if (outcome.error.starts_with("skip: ")) GTEST_SKIP() << outcome.error.substr(6);
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome;
}

// ---- a store that is gone ------------------------------------------------------------------------------------------

TEST(LostStore, NewGroupSaysSoAtOnce) {
  dist::TcpStore server = dist::serve_store("127.0.0.1", 0);
  const int port = server->getPort();
  std::promise<void> gone;
  const std::shared_future<void> is_gone = gone.get_future();
  spawn_ranks(
      2,
      [&](int rank, int size) {
        dist::init_process_group(
            InitOptions{.world_size = size, .rank = rank, .store = dist::connect_store("127.0.0.1", port, kNever)});
        dist::barrier();
        if (rank == 0) {
          server.reset();
          gone.set_value();
        }
        is_gone.wait();
        try {
          dist::new_group();
          ADD_FAILURE() << "made";
        } catch (const dist::Error& error) {
          EXPECT_THAT(error.what(), AllOf(HasSubstr("the store at 127.0.0.1"), HasSubstr("can't be reached any more")));
        }
        at::Tensor tensor = at::ones({3});  // the group that is there needs no store
        dist::all_reduce(tensor);
        EXPECT_EQ(tensor[0].item<float>(), 2);
      },
      kNotInitialised);
}

TEST(LostStore, AbortReachesARankThatConnectsToIt) {
  dist::TcpStore server = dist::serve_store("127.0.0.1", 0);
  const int port = server->getPort();
  const Outcome outcome = as_rank([&] {
    dist::init_process_group(
        InitOptions{.world_size = 1, .rank = 0, .store = dist::connect_store("127.0.0.1", port, kNever)});
    server.reset();
    // Something that takes connections and never answers, as a process that is stopped.
    const testing::SilentListener silent(port);
    std::thread watcher([&, context = dist::current_context()] {
      const int taken = silent.take();  // the rank waits for an answer now
      context->abort("enough");
      close(taken);
    });
    EXPECT_THROW(dist::new_group(), dist::Aborted);
    watcher.join();
  });
  EXPECT_TRUE(outcome.ok()) << outcome;
}

}  // namespace
}  // namespace lockstep
