// `lockstep run -- LAUNCHER` over ranks without Python: shell/jobs/. The launcher is this program, which is a rank of its
// own job then (FakeRank).
#include "shell/jobs/job_run.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>

#include "protocol/descriptor.h"
#include "python/agent/agent.h"
#include "shell/jobs/job_output_tail.h"

namespace fs = std::filesystem;
using namespace lockstep;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

namespace {

void start_fake_rank() {
  protocol::JobRank rank;
  ASSERT_TRUE(agent::rank_from_environment(rank));
  ASSERT_EQ(agent::start(rank), "");
}

void add_to(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::app) << text; }

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// ---- ranks, which the tests below start

TEST(FakeRank, DISABLED_AnswersOddly) {
  std::promise<void> asked;
  int times = 0;
  agent::add_handler("status", [&](const json&) {
    if (++times == 2) asked.set_value();
    return json{{"groups", {{"0", 7}, {"1", "x"}}}, {"step", "x"}};
  });
  start_fake_rank();
  asked.get_future().wait();
}

TEST(FakeRank, DISABLED_AddsLinesOfItsOwn) {
  add_to(std::getenv("LOCKSTEP_FINDINGS"), "{\"event\":3}\n{\"event\":\"finding\",\"severity\":[]}\n7\n[]\nno JSON\n");
}

TEST(FakeRank, DISABLED_FindsAFault) {
  add_to(std::getenv("LOCKSTEP_FINDINGS"), "{\"event\":\"finding\",\"severity\":\"fault\"}\n");
}

TEST(FakeRank, DISABLED_LetsTheWatchWait) {
  sigset_t terminate;
  ::sigemptyset(&terminate);
  ::sigaddset(&terminate, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &terminate, nullptr);
  std::promise<void> over;
  agent::add_handler("status",
                     [](const json&) { return json{{"groups", {{"0", {{"enqueued", 1}, {"completed", 0}}}}}}; });
  agent::add_handler(
      "collectives",
      [&, once = false](const json&) mutable {
        if (std::exchange(once, true)) return json::object();
        ::kill(::getppid(), SIGTERM);  // as a batch system does, to `lockstep run`, which waits for this answer
        const timespec limit{10, 0};
        add_to(std::getenv("FAKE_RANK_FILE"), ::sigtimedwait(&terminate, nullptr, &limit) == SIGTERM ? "came" : "late");
        return json::object();
      },
      agent::Runs::aside);
  agent::add_handler("stacks", [&, once = false](const json&) mutable {
    if (!std::exchange(once, true)) over.set_value();
    const json frame = {{"function", "clock_nanosleep"}, {"object", "libc.so.6"}};
    return json{{"native", {frame}}, {"held", true}};  // as in a hang
  });
  start_fake_rank();
  over.get_future().wait();
}

/// Until `lockstep run`, which has the same file for its standard error, has written something.
TEST(FakeRank, DISABLED_IsNone) {
  struct stat said = {};
  while (::fstat(STDERR_FILENO, &said) == 0 && said.st_size == 0) ::usleep(10'000);
}

constexpr const char* kWaits =
    R"({"version":"2.10","entries":[{"record_id":0,"pg_id":0,"process_group":["0","default_pg"],"collective_seq_id":4,
        "p2p_seq_id":0,"op_id":1,"profiling_name":"gloo:all_reduce","time_created_ns":1,"input_sizes":[[4]],
        "input_dtypes":["Float"],"output_sizes":[[4]],"output_dtypes":["Float"],"state":"scheduled",
        "time_discovered_started_ns":null,"time_discovered_completed_ns":null,"retired":false,"timeout_ms":1,
        "is_p2p":false}],"pg_config":{"0":{"name":"0","desc":"default_pg","ranks":""}}})";

/// As with Ctrl-C in a terminal: it can't be asked any more when `lockstep run` gets the signal.
TEST(FakeRank, DISABLED_IsGoneAtASignal) {
  std::promise<void> looked;
  bool was_asked = false, is_over = false;
  agent::add_handler("status", [&](const json&) {
    if (was_asked && !std::exchange(is_over, true)) looked.set_value();
    return json{{"groups", {{"0", {{"enqueued", 4}, {"completed", 3}}}}}};
  });
  agent::add_handler("collectives", [](const json&) { return json{{"dumps", {{{"text", kWaits}}}}}; });
  agent::add_handler("stacks", [&](const json&) {
    was_asked = true;
    return json{{"native", {{{"function", "clock_nanosleep"}, {"object", "libc.so.6"}}}}, {"held", true}};
  });
  start_fake_rank();
  looked.get_future().wait();
  ::kill(::getppid(), SIGINT);
  ::raise(SIGKILL);
}

/// Waits in a collective until it has been asked twenty times how far it is, or for ever.
void wait_for_peer(bool for_ever) {
  std::promise<void> over;
  int times = 0;
  agent::add_handler("status", [&](const json&) {
    if (++times == 20 && !for_ever) over.set_value();
    return json{{"groups", {{"0", {{"enqueued", 4}, {"completed", 3}}}}}};
  });
  agent::add_handler("collectives", [](const json&) { return json{{"dumps", {{{"text", kWaits}}}}}; });
  agent::add_handler("stacks", [](const json&) {
    return json{{"native", {{{"function", "clock_nanosleep"}, {"object", "libc.so.6"}}}}, {"held", true}};
  });
  start_fake_rank();
  over.get_future().wait();
}

TEST(FakeRank, DISABLED_WaitsForItsPeer) { wait_for_peer(/*for_ever=*/false); }
TEST(FakeRank, DISABLED_WaitsForEver) { wait_for_peer(/*for_ever=*/true); }

// ---- what the watch makes of them

class WatchedJob : public testing::Test {
 protected:
  WatchedJob() {
    std::string pattern = (fs::temp_directory_path() / "lockstep-job-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    for (const char* name : {"LOCKSTEP_JOB", "LOCKSTEP_FINDINGS", "LOCAL_RANK"}) ::unsetenv(name);
    ::setenv("RANK", "0", 1);
    ::setenv("WORLD_SIZE", "1", 1);
  }
  ~WatchedJob() override {
    for (const char* name : {"RANK", "WORLD_SIZE"}) ::unsetenv(name);
    fs::remove_all(folder_);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  static int run(const std::string& rank, shell::JobOptions options = {}) {
    options.launcher = {"/proc/self/exe", "--gtest_also_run_disabled_tests",
                        "--gtest_filter=FakeRank.DISABLED_" + rank};
    return shell::JobRun(std::move(options)).run();
  }

 private:
  fs::path folder_;
};

TEST_F(WatchedJob, AnAnswerThatCannotBeReadCostsThatRank) {
  EXPECT_EQ(run("AnswersOddly", {.launcher = {}, .hang_timeout_s = 4}), 0);
}

TEST_F(WatchedJob, LinesOfTheProgramAmongTheFindingsAreNoFaults) {
  EXPECT_EQ(run("AddsLinesOfItsOwn"), 0);
  EXPECT_EQ(run("FindsAFault"), 1);
}

TEST_F(WatchedJob, FindingsMayGoIntoAPipe) {
  ASSERT_EQ(::mkfifo(path("findings").c_str(), 0600), 0);
  const Descriptor reader(::open(path("findings").c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  EXPECT_EQ(run("FindsAFault", {.launcher = {}, .findings = path("findings")}), 0);  // it can't be read again
}

TEST_F(WatchedJob, ASignalReachesTheLauncherWhileTheWatchWaitsForARank) {
  ::setenv("FAKE_RANK_FILE", path("signal").c_str(), 1);
  EXPECT_EQ(run("LetsTheWatchWait", {.launcher = {}, .hang_timeout_s = 0.2}), 130);
  EXPECT_EQ(text_of(path("signal")), "came");
}

TEST_F(WatchedJob, AJobWithoutARankSaysSo) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run("IsNone", {.launcher = {}, .first_rank_s = 0.05}), 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no rank has appeared within 0.05 s"));
}

TEST_F(WatchedJob, TheTimeUntilAllRanksHaveComeIsNoHang) {
  ::setenv("WORLD_SIZE", "2", 1);
  EXPECT_EQ(run("WaitsForItsPeer", {.launcher = {}, .hang_timeout_s = 0.2}), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run("WaitsForEver", {.launcher = {}, .hang_timeout_s = 0.2, .first_rank_s = 0.5}), 4);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("rank 0 waits in all_reduce #4 of default_pg"));
}

TEST_F(WatchedJob, WhatRanksDidBeforeASignalIsKnown) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run("IsGoneAtASignal", {.launcher = {}, .findings = path("findings"), .proof_s = 0.1}), 130);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("interrupted when no collective had ended"));
  EXPECT_THAT(text_of(path("findings")), HasSubstr("all_reduce #4 of default_pg"));
}

TEST_F(WatchedJob, TheTailIsOfThisJob) {
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(path(name)).parent_path());
    add_to(path(name), text);
  };
  write("logs/none_a/attempt_0/0/stdout.log", "earlier 0\n");
  write("logs/none_a/attempt_0/5/stdout.log", "earlier 5\n");
  const shell::JobOutputTail tail(3, {"torchrun", "--log-dir", path("logs")});
  EXPECT_THAT(tail.text({{0, 0}}), HasSubstr("there are no files"));
  write("logs/none_b/attempt_0/0/stdout.log", "now\n");
  EXPECT_THAT(tail.text({{0, 4}}), HasSubstr("rank 4, standard output:\n    now\n"));
  EXPECT_THAT(tail.text({{0, 4}}), Not(HasSubstr("earlier")));
}

}  // namespace
