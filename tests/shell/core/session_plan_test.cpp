// Options and variables that make no session, each with a message that says how to fix it. For a machine without GPUs
// the ids are refused; with them, ids that do not exist are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/error.h"
#include "shell/processes/gpus.h"
#include "shell/processes/session_plan.h"

namespace lockstep::shell {
namespace {

using testing::HasSubstr;

std::string plan_error(const SessionOptions& options) {
  try {
    plan_session(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

SessionOptions ranks(int n) {
  SessionOptions options;
  options.num_processes = n;
  return options;
}

TEST(SessionPlan, TwoRanksOnTheCpuByDefault) {
  if (no_gpu_reason().empty()) GTEST_SKIP() << "this machine has GPUs";
  const auto plan = plan_session({});
  EXPECT_EQ(plan.world_size, 2);
  EXPECT_EQ(plan.backend, "gloo");
  EXPECT_EQ(plan.devices, (std::vector<std::string>{"cpu", "cpu"}));
  EXPECT_GE(plan.threads, 1);
}

TEST(SessionPlan, NumbersOfRanks) {
  EXPECT_THAT(plan_error(ranks(0)), HasSubstr("at least one rank"));
  EXPECT_THAT(plan_error(ranks(-3)), HasSubstr("-n -3"));
  EXPECT_THAT(plan_error(ranks(100000)), HasSubstr("at most"));
}

TEST(SessionPlan, GpusThatDoNotExist) {
  SessionOptions options;
  options.gpu_ids = {4096};
  EXPECT_THAT(plan_error(options), HasSubstr("GPU 4096"));
  options.gpu_ids = {};
  options.backend = "mpi";
  EXPECT_THAT(plan_error(options), HasSubstr("gloo"));
}

TEST(SessionPlan, GpuLists) {
  EXPECT_EQ(parse_gpu_ids("0,2"), (std::vector<int>{0, 2}));
  for (const char* list : {"", "0,,1", "a", "-1", "0,0", "0, 1"}) EXPECT_THROW(parse_gpu_ids(list), UsageError) << list;
}

TEST(SessionPlan, BadVariables) {
  for (const auto& [name, value] : {std::pair("LOCKSTEP_THREADS", "many"), std::pair("LOCKSTEP_THREADS", "0")}) {
    ::setenv(name, value, 1);
    EXPECT_THAT(plan_error(ranks(1)), HasSubstr(std::string(name) + " is '" + value + "'"));
    ::unsetenv(name);
  }
  ::setenv("LOCKSTEP_THREADS", "3", 1);
  EXPECT_EQ(plan_session(ranks(1)).threads, 3);
  ::unsetenv("LOCKSTEP_THREADS");
}

}  // namespace
}  // namespace lockstep::shell
