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

NcclEnvironment chosen_with(const std::map<std::string, std::string>& environment) {
  return choose_nccl_environment([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(NcclEnvironment, TheWatchdogEndsNoProcess) {
  const NcclEnvironment chosen = chosen_with({});
  EXPECT_THAT(chosen.notes, IsEmpty());
  EXPECT_EQ(chosen.set.size(), nccl_variables().size());
  EXPECT_THAT(chosen.set, Contains(Pair("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")));
  EXPECT_THAT(chosen.set, Contains(Pair("TORCH_NCCL_ENABLE_MONITORING", "0")));
  EXPECT_THAT(chosen.set, Contains(Pair("TORCH_NCCL_RETHROW_CUDA_ERRORS", "0")));
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

TEST(NcclEnvironment, TheSameValueIsNotNoted) {
  const NcclEnvironment chosen = chosen_with({{"TORCH_NCCL_ENABLE_TIMING", "true"}, {"NCCL_RUNTIME_CONNECT", "0"}});
  EXPECT_THAT(chosen.notes, IsEmpty());
  EXPECT_THAT(chosen.set, Not(Contains(Key("NCCL_RUNTIME_CONNECT"))));
}

}  // namespace
}  // namespace lockstep::dist
