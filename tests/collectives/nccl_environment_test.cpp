// The environment of NCCL's groups: what the user has set stays, with a note about what follows.
#include "collectives/transport/nccl_environment.h"

#include <gmock/gmock.h>

#include <map>

namespace lockstep::dist {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

NcclEnvironment chosen_with(const std::map<std::string, std::string>& environment, bool loopback = true) {
  return choose_nccl_environment(
      [&](const char* name) -> const char* {
        const auto found = environment.find(name);
        return found == environment.end() ? nullptr : found->second.c_str();
      },
      loopback);
}

TEST(NcclEnvironment, TheWatchdogEndsNoProcess) {
  const NcclEnvironment chosen = chosen_with({});
  EXPECT_THAT(chosen.notes, IsEmpty());
  EXPECT_EQ(chosen.set.size(), nccl_variables(/*loopback=*/true).size());
  EXPECT_THAT(chosen.set, Contains(Pair("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")));
  EXPECT_THAT(chosen.set, Contains(Pair("TORCH_NCCL_ENABLE_MONITORING", "0")));
  EXPECT_THAT(chosen.set, Contains(Pair("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0")));
  EXPECT_THAT(chosen.set, Contains(Pair("TORCH_NCCL_DESYNC_DEBUG", "0")));
}

TEST(NcclEnvironment, AValueOfTheUserStaysAndIsNoted) {
  const NcclEnvironment chosen = chosen_with({{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}});
  EXPECT_THAT(chosen.set, Not(Contains(Key("TORCH_NCCL_ASYNC_ERROR_HANDLING"))));
  EXPECT_THAT(chosen.notes,
              ElementsAre(AllOf(HasSubstr("TORCH_NCCL_ASYNC_ERROR_HANDLING=1"), HasSubstr("ends the rank"))));
}

TEST(NcclEnvironment, TheOlderNamesCount) {
  const NcclEnvironment chosen = chosen_with({{"NCCL_ASYNC_ERROR_HANDLING", "3"}});
  EXPECT_THAT(chosen.set, Not(Contains(Key("TORCH_NCCL_ASYNC_ERROR_HANDLING"))));
  EXPECT_THAT(chosen.notes, ElementsAre(HasSubstr("NCCL_ASYNC_ERROR_HANDLING=3")));
}

TEST(NcclEnvironment, WhatTurnsTheWatchdogOnAgainIsNoted) {
  for (const char* level : {"DETAIL", "detail"})
    EXPECT_THAT(
        chosen_with({{"TORCH_DISTRIBUTED_DEBUG", level}}).notes,
        ElementsAre(AllOf(HasSubstr(std::string("TORCH_DISTRIBUTED_DEBUG=") + level), HasSubstr("ends the rank"))));
  EXPECT_THAT(chosen_with({{"TORCH_DISTRIBUTED_DEBUG", "INFO"}}).notes, IsEmpty());
  EXPECT_THAT(chosen_with({{"NCCL_DESYNC_DEBUG", "1"}}).notes,
              ElementsAre(AllOf(HasSubstr("NCCL_DESYNC_DEBUG=1"), HasSubstr("ends the rank"))));
}

TEST(NcclEnvironment, OnOneMachineNothingListensForOthers) {
  EXPECT_THAT(chosen_with({}).set,
              AllOf(Contains(Pair("NCCL_SOCKET_IFNAME", "lo")), Contains(Pair("NCCL_RAS_ENABLE", "0"))));
  EXPECT_THAT(chosen_with({}, /*loopback=*/false).set,
              AllOf(Not(Contains(Key("NCCL_SOCKET_IFNAME"))), Not(Contains(Key("NCCL_RAS_ENABLE")))));
  EXPECT_THAT(chosen_with({{"NCCL_SOCKET_IFNAME", "eth0"}}).notes,
              ElementsAre(AllOf(HasSubstr("NCCL_SOCKET_IFNAME=eth0"), HasSubstr("listens"))));
}

TEST(NcclEnvironment, TheSameValueIsNotNoted) {
  const NcclEnvironment chosen = chosen_with({{"TORCH_NCCL_ENABLE_TIMING", "true"}, {"NCCL_RUNTIME_CONNECT", "0"}});
  EXPECT_THAT(chosen.notes, IsEmpty());
  EXPECT_THAT(chosen.set, Not(Contains(Key("NCCL_RUNTIME_CONNECT"))));
}

}  // namespace
}  // namespace lockstep::dist
