// Runs a function as several ranks of one default group: as threads of this process over an in-process store, or as
// processes over a TCPStore that the test holds. Every rank's outcome comes back; nothing that a rank started outlives
// the call.
//
//   spawn_ranks(3, [](int rank, int world_size) { … dist::all_reduce(t); … });      // threads, all must succeed
//   auto outcomes = run_as_processes(3, [](int rank, int world_size) { … });        // processes, any may fail or be killed
//
// A process is this test program again, told to run the same test and, at this call, the function: so the function must
// not depend on what the test did before, and a test calls run_as_processes outside of loops with side effects.
#pragma once
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cxxabi.h>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "collectives/dist.h"
#include "collectives/rank_context.h"
#include "collectives/transport/tcp_store.h"

extern char** environ;

namespace lockstep::testing {

struct RankOptions {
  bool initialise = true;  // make the default group before the function runs
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  bool check_collectives = true;
  std::string backend;  // of the default group; empty: the default one
  std::string log_folder;  // each rank's log is <folder>/log-<rank>; empty: anonymous memory
};

struct Outcome {
  std::string type;  // of the exception that left the function: "lockstep::dist::PeerLeft"
  std::string error;  // its text
  int signal = 0;  // that ended the process
  bool ok() const { return type.empty() && signal == 0; }
};

inline std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  if (outcome.signal) return out << "ended by signal " << outcome.signal;
  return out << (outcome.ok() ? "ok" : outcome.type + ": " + outcome.error);
}

using RankFunction = std::function<void(int rank, int world_size)>;

namespace detail {

inline Outcome run_rank(int rank, int world_size, const dist::Store& store, const RankFunction& function,
                        const RankOptions& options) {
  Outcome outcome;
  try {
    if (options.initialise) {
      dist::init_process_group(dist::InitOptions{
          .backend = options.backend,
          .timeout = options.timeout,
          .connect_timeout = options.timeout,
          .world_size = world_size,
          .rank = rank,
          .store = store,
          .check_collectives = options.check_collectives,
          .log_path = options.log_folder.empty() ? "" : options.log_folder + "/log-" + std::to_string(rank)});
    }
    function(rank, world_size);
  } catch (const std::exception& error) {
    int status = 0;
    char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
    outcome = {.type = name ? name : typeid(error).name(), .error = error.what()};
    std::free(name);
  }
  return outcome;
}

inline std::string folder_for_results() {
  std::string pattern = std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX";
  if (!mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
  return pattern;
}

// Which call of run_as_processes this is, counted within the test: the same here and in the processes, which run that
// test only.
inline int next_call() {
  static const ::testing::TestInfo* test = nullptr;
  static ::testing::TimeInMillis start = 0;  // tells repetitions of a test apart
  static int number = 0;
  const auto* current = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto current_start = current->result()->start_timestamp();
  if (test != current || start != current_start) number = 0;
  test = current;
  start = current_start;
  return ++number;
}

[[noreturn]] inline void be_a_rank(const RankFunction& function, const RankOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int rank = std::atoi(std::getenv("LOCKSTEP_TEST_RANK"));
  const int world_size = std::atoi(std::getenv("LOCKSTEP_TEST_WORLD_SIZE"));
  Outcome outcome;
  {
    const dist::Store store = dist::connect_store("127.0.0.1", std::atoi(std::getenv("LOCKSTEP_TEST_PORT")));
    outcome = run_rank(rank, world_size, store, function, options);
    if (::testing::Test::HasFailure() && outcome.ok()) outcome = {.type = "expectation", .error = "failed, see above"};
    if (dist::is_initialized()) dist::destroy_process_group();
  }
  std::ofstream(std::string(std::getenv("LOCKSTEP_TEST_FOLDER")) + "/" + std::to_string(rank)) << outcome.type << '\n'
                                                                                               << outcome.error;
  std::cout.flush();
  _exit(0);
}

}  // namespace detail

inline std::vector<Outcome> run_as_threads(int world_size, const RankFunction& function,
                                           const RankOptions& options = {}) {
  // LibTorch's flight recorder is one for the process, and not made for Gloo groups of several threads: it crashes.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<Outcome> outcomes(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const dist::ThreadRank thread_rank;
      outcomes[static_cast<size_t>(rank)] = detail::run_rank(rank, world_size, store, function, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// `meanwhile` runs here, with the processes' ids by rank, while they run. Processes that the call leaves behind are
/// killed.
inline std::vector<Outcome> run_as_processes(int world_size, const RankFunction& function,
                                             const RankOptions& options = {},
                                             const std::function<void(const std::vector<pid_t>&)>& meanwhile = {}) {
  const int call = detail::next_call();
  if (const char* wanted = std::getenv("LOCKSTEP_TEST_CALL")) {
    if (std::atoi(wanted) == call) detail::be_a_rank(function, options);
    return std::vector<Outcome>(static_cast<size_t>(world_size));
  }
  const dist::TcpStore store = dist::serve_store("127.0.0.1", 0);
  const int port = store->getPort();
  const std::string folder = detail::folder_for_results();
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter = std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();

  std::vector<pid_t> pids;
  for (int rank = 0; rank < world_size; ++rank) {
    std::vector<std::string> environment;
    for (char** each = environ; *each; ++each) environment.push_back(*each);
    environment.push_back("LOCKSTEP_TEST_RANK=" + std::to_string(rank));
    environment.push_back("LOCKSTEP_TEST_WORLD_SIZE=" + std::to_string(world_size));
    environment.push_back("LOCKSTEP_TEST_PORT=" + std::to_string(port));
    environment.push_back("LOCKSTEP_TEST_FOLDER=" + folder);
    environment.push_back("LOCKSTEP_TEST_CALL=" + std::to_string(call));
    std::vector<char*> variables;
    for (std::string& each : environment) variables.push_back(each.data());
    variables.push_back(nullptr);
    std::string program = "/proc/self/exe", copy = filter, quiet = "--gtest_brief=1";
    char* arguments[] = {program.data(), copy.data(), quiet.data(), nullptr};
    pid_t pid = 0;
    if (posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments, variables.data()) != 0)
      throw std::runtime_error("a rank could not be started");
    pids.push_back(pid);
  }
  if (meanwhile) meanwhile(pids);

  std::vector<Outcome> outcomes(pids.size());
  for (size_t rank = 0; rank < pids.size(); ++rank) {
    int status = 0;
    waitpid(pids[rank], &status, 0);
    Outcome& outcome = outcomes[rank];
    if (WIFSIGNALED(status)) {
      outcome.signal = WTERMSIG(status);
      continue;
    }
    std::ifstream file(folder + "/" + std::to_string(rank));
    if (!file) {
      outcome = {.type = "exit", .error = "code " + std::to_string(WEXITSTATUS(status)) + " before the function ended"};
      continue;
    }
    std::getline(file, outcome.type);
    std::stringstream text;
    text << file.rdbuf();
    outcome.error = text.str();
  }
  std::filesystem::remove_all(folder);
  return outcomes;
}

/// As threads; every rank must succeed.
inline void spawn_ranks(int world_size, const RankFunction& function, const RankOptions& options = {}) {
  const auto outcomes = run_as_threads(world_size, function, options);
  for (size_t rank = 0; rank < outcomes.size(); ++rank)
    EXPECT_TRUE(outcomes[rank].ok()) << "rank " << rank << ": " << outcomes[rank];
}

/// As processes; every rank must succeed.
inline void spawn_processes(int world_size, const RankFunction& function, const RankOptions& options = {}) {
  const auto outcomes = run_as_processes(world_size, function, options);
  for (size_t rank = 0; rank < outcomes.size(); ++rank)
    EXPECT_TRUE(outcomes[rank].ok()) << "rank " << rank << ": " << outcomes[rank];
}

}  // namespace lockstep::testing
