// Options and variables that make no session, each with a message that says how to fix it. For a machine without GPUs
// the ids are refused; with them, ids that do not exist are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "protocol/error.h"
#include "shell/processes/gpus.h"
#include "shell/processes/session_plan.h"

namespace lockstep::shell {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string plan_error(const SessionOptions& options, const Gpus& gpus = find_gpus()) {
  try {
    plan_session(options, gpus);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

Gpus machine_with(std::vector<std::string> visible) { return {.visible = std::move(visible), .problem = {}}; }

const Gpus kNoGpus{.visible = {}, .problem = "no GPU is visible on this machine"};

SessionOptions ranks(int n) {
  SessionOptions options;
  options.num_processes = n;
  return options;
}

TEST(SessionPlan, TwoRanksOnTheCpuByDefault) {
  const auto plan = plan_session({}, kNoGpus);
  EXPECT_EQ(plan.world_size, 2);
  EXPECT_EQ(plan.backend, "shared_memory");
  EXPECT_EQ(plan.devices, (std::vector<std::string>{"cpu", "cpu"}));
  EXPECT_GE(plan.threads, 1);
}

TEST(SessionPlan, RanksOnOneMachineShareMemory) {
  EXPECT_EQ(plan_session(ranks(64), kNoGpus).backend, "shared_memory");
  for (const int n : {1, 65}) EXPECT_EQ(plan_session(ranks(n), kNoGpus).backend, "gloo");
  SessionOptions options = ranks(2);
  options.hosts = "node1,node2";
  EXPECT_EQ(plan_session(options, kNoGpus).backend, "gloo");
  options.hosts.clear();
  options.backend = "gloo";
  EXPECT_EQ(plan_session(options, kNoGpus).backend, "gloo");
}

TEST(SessionPlan, SharedMemoryIsForRanksOnTheCpu) {
  SessionOptions options = ranks(2);
  options.backend = "shared_memory";
  EXPECT_EQ(plan_session(options, kNoGpus).backend, "shared_memory");
  EXPECT_THAT(plan_error(options, machine_with({"0", "1"})), HasSubstr("Hide the GPUs"));
  options.num_processes = 64;
  EXPECT_EQ(plan_session(options, kNoGpus).backend, "shared_memory");
  options.num_processes = 65;
  EXPECT_THAT(plan_error(options, kNoGpus), HasSubstr("up to 64 ranks, not 65"));
  options.num_processes = 2;
  options.hosts = "node1,node2";
  EXPECT_THAT(plan_error(options, kNoGpus), HasSubstr("several machines use Gloo"));
}

TEST(SessionPlan, RanksElsewhereNeedNothingOfThisMachine) {
  SessionOptions options = ranks(100000);
  options.hosts = "node1,node2";
  options.backend = "nccl";
  for (const Gpus& gpus : {kNoGpus, machine_with({"0"})}) EXPECT_EQ(plan_session(options, gpus).world_size, 100000);
}

TEST(SessionPlan, NumbersOfRanks) {
  EXPECT_THAT(plan_error(ranks(0)), HasSubstr("at least one rank"));
  EXPECT_THAT(plan_error(ranks(-3)), HasSubstr("-n -3"));
  EXPECT_THAT(plan_error(ranks(100000)), HasSubstr("at most"));
}

TEST(SessionPlan, OneRankForEachVisibleGpu) {
  const auto plan = plan_session({}, machine_with({"0", "1", "2"}));
  EXPECT_EQ(plan.world_size, 3);
  EXPECT_EQ(plan.backend, "auto");
  EXPECT_EQ(plan.devices, (std::vector<std::string>{"cuda:0", "cuda:0", "cuda:0"}));
  EXPECT_EQ(plan.visible_devices, (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(plan.gpu_ids, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(plan_session(ranks(2), machine_with({"0", "1", "2"})).world_size, 2);
}

TEST(SessionPlan, GpuIdsCountAmongTheVisibleGpus) {
  SessionOptions options;
  options.gpu_ids = {1, 0};
  const auto plan = plan_session(options, machine_with({"5", "GPU-1f2e"}));
  EXPECT_EQ(plan.world_size, 2);
  EXPECT_EQ(plan.visible_devices, (std::vector<std::string>{"GPU-1f2e", "5"}));
  EXPECT_EQ(plan.gpu_ids, (std::vector<int>{1, 0}));
  options.num_processes = 1;
  EXPECT_THAT(plan_error(options, machine_with({"5", "6"})), HasSubstr("-n 1 with 2 GPU ids"));
}

TEST(SessionPlan, AllGpusVisible) {
  SessionOptions options;
  options.all_gpus_visible = true;
  const auto plan = plan_session(options, machine_with({"4", "5"}));
  EXPECT_EQ(plan.devices, (std::vector<std::string>{"cuda:0", "cuda:1"}));
  EXPECT_TRUE(plan.visible_devices.empty());
}

TEST(SessionPlan, TheEnvironmentOfARank) {
  using Environment = std::map<std::string, std::string>;
  SessionOptions options;
  options.gpu_ids = {1, 0};
  EXPECT_EQ(device_environment(plan_session(options, machine_with({"4", "7"})), 0),
            (Environment{{"LOCKSTEP_DEVICE", "cuda:0"}, {"LOCKSTEP_GPU_ID", "1"}, {"CUDA_VISIBLE_DEVICES", "7"}}));
  options.all_gpus_visible = true;
  EXPECT_EQ(device_environment(plan_session(options, machine_with({"4", "7"})), 0),
            (Environment{{"LOCKSTEP_DEVICE", "cuda:1"}, {"LOCKSTEP_GPU_ID", "1"}}));
  EXPECT_EQ(device_environment(plan_session({}, kNoGpus), 1), (Environment{{"LOCKSTEP_DEVICE", "cpu"}}));
}

TEST(SessionPlan, MoreRanksThanGpusAreRefusedWithTheFixes) {
  EXPECT_THAT(plan_error(ranks(2), machine_with({"0"})),
              AllOf(HasSubstr("-n 2: 1 GPU is visible"), HasSubstr("--share-gpu"), HasSubstr("CUDA_VISIBLE_DEVICES=")));
}

TEST(SessionPlan, RanksThatShareGpusUseGloo) {
  SessionOptions options = ranks(3);
  options.share_gpu = true;
  const auto plan = plan_session(options, machine_with({"0", "7"}));
  EXPECT_EQ(plan.backend, "gloo");
  EXPECT_EQ(plan.visible_devices, (std::vector<std::string>{"0", "7", "0"}));
  options.num_processes.reset();
  EXPECT_EQ(plan_session(options, machine_with({"0"})).world_size, 2);
  EXPECT_EQ(plan_session(options, machine_with({"0", "1", "2"})).world_size, 3);
  options.gpu_ids = {1};
  EXPECT_EQ(plan_session(options, machine_with({"0", "1"})).gpu_ids, (std::vector<int>{1, 1}));
}

TEST(SessionPlan, RanksThatShareAGpuAreHostsOfTheirOwnForNccl) {
  SessionOptions options = ranks(2);
  options.share_gpu = true;
  for (const char* backend : {"nccl", "cpu:gloo,cuda:nccl"}) {
    options.backend = backend;
    const auto plan = plan_session(options, machine_with({"0"}));
    EXPECT_EQ(plan.backend, backend);
    EXPECT_EQ(device_environment(plan, 0).at("NCCL_HOSTID"), "lockstep-rank-0");
    EXPECT_EQ(device_environment(plan, 1).at("NCCL_HOSTID"), "lockstep-rank-1");
  }
  options.backend = "gloo";
  EXPECT_FALSE(device_environment(plan_session(options, machine_with({"0"})), 0).contains("NCCL_HOSTID"));
  options.share_gpu = false;
  options.backend = "nccl";
  EXPECT_FALSE(device_environment(plan_session(options, machine_with({"0", "1"})), 0).contains("NCCL_HOSTID"));
}

TEST(SessionPlan, GpusThatDoNotExist) {
  SessionOptions options;
  options.gpu_ids = {4096};
  EXPECT_THAT(plan_error(options), HasSubstr("GPU 4096"));
  EXPECT_THAT(plan_error(options, machine_with({"0", "1"})), HasSubstr("2 GPUs are visible, GPUs 0-1"));
  for (const auto& wish : {std::function<void(SessionOptions&)>([](auto& o) { o.share_gpu = true; }),
                           std::function<void(SessionOptions&)>([](auto& o) { o.all_gpus_visible = true; }),
                           std::function<void(SessionOptions&)>([](auto& o) { o.backend = "nccl"; })}) {
    SessionOptions wished;
    wish(wished);
    EXPECT_THAT(plan_error(wished, kNoGpus), HasSubstr("no GPU is visible on this machine"));
  }
  options.gpu_ids = {};
  options.backend = "mpi";
  EXPECT_THAT(plan_error(options), HasSubstr("gloo"));
}

TEST(SessionPlan, ALibTorchForTheCpuIsRefusedWhereThereAreGpus) {
  Gpus gpus = machine_with({"0"});
  gpus.problem = "this machine has GPUs, and LibTorch is for the CPU only: run tools/setup --gpu";
  EXPECT_EQ(plan_session({}, gpus).devices.front(), "cpu");
  gpus.refuses = true;
  EXPECT_THAT(plan_error({}, gpus), HasSubstr("tools/setup --gpu"));
}

TEST(SessionPlan, WhatCudaVisibleDevicesLeaves) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(visible_devices(3, nullptr), (Names{"0", "1", "2"}));
  EXPECT_EQ(visible_devices(3, "2,0"), (Names{"2", "0"}));
  EXPECT_EQ(visible_devices(3, "GPU-8932f937,MIG-a1"), (Names{"GPU-8932f937", "MIG-a1"}));
  EXPECT_EQ(visible_devices(3, "1,-1,2"), (Names{"1"}));  // as CUDA: the rest of the list is not read
  EXPECT_EQ(visible_devices(3, "1,3,2"), (Names{"1"}));
  for (const char* none : {"", "-1", "none"}) EXPECT_EQ(visible_devices(3, none), Names{}) << none;
}

TEST(SessionPlan, GpuLists) {
  EXPECT_EQ(parse_gpu_ids("0,2"), (std::vector<int>{0, 2}));
  for (const char* list : {"", "0,,1", "a", "-1", "0,0", "0, 1"}) EXPECT_THROW(parse_gpu_ids(list), UsageError) << list;
}

TEST(SessionPlan, BadVariables) {
  for (const auto& [name, value] : {std::pair("LOCKSTEP_THREADS", "many"), std::pair("LOCKSTEP_THREADS", "0"),
                                    std::pair("LOCKSTEP_FOLD_TIME", "1s"), std::pair("LOCKSTEP_FOLD_TIME", "0")}) {
    ::setenv(name, value, 1);
    EXPECT_THAT(plan_error(ranks(1)), HasSubstr(std::string(name) + " is '" + value + "'"));
    ::unsetenv(name);
  }
  ::setenv("LOCKSTEP_THREADS", "3", 1);
  EXPECT_EQ(plan_session(ranks(1)).threads, 3);
  ::unsetenv("LOCKSTEP_THREADS");
  EXPECT_EQ(fold_time(), std::nullopt);
  ::setenv("LOCKSTEP_FOLD_TIME", "1500", 1);
  EXPECT_EQ(fold_time(), std::chrono::milliseconds(1500));
  ::unsetenv("LOCKSTEP_FOLD_TIME");
}

}  // namespace
}  // namespace lockstep::shell
