#include "protocol/launchers.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep::protocol {
namespace {

std::optional<LaunchedRank> rank_of(const std::map<std::string, std::string>& variables) {
  return launched_rank([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

TEST(Launchers, TorchrunWithinAnotherCounts) {
  const auto rank = rank_of({{"RANK", "3"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_NTASKS", "4"}});
  ASSERT_TRUE(rank);
  EXPECT_STREQ(rank->launcher->name, "");
  EXPECT_EQ(rank->rank, 3);
  EXPECT_EQ(rank->world_size, 8);
  EXPECT_EQ(rank->local_rank, 1);
  EXPECT_EQ(rank->local_world_size, 2);
}

TEST(Launchers, WhatALauncherDoesNotSayIsUnknown) {
  const auto slurm = rank_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"LOCAL_WORLD_SIZE", "4"}});
  ASSERT_TRUE(slurm);
  EXPECT_STREQ(slurm->launcher->name, "Slurm");
  EXPECT_EQ(slurm->local_rank, std::nullopt);
  EXPECT_EQ(slurm->local_world_size, 0);
}

TEST(Launchers, NumbersThatMakeNoSenseAreNone) {
  EXPECT_FALSE(rank_of({}));
  EXPECT_FALSE(rank_of({{"RANK", "0"}}));
  for (const char* rank : {"", "4", "-1", "1x", " 1", "99999999999"})
    EXPECT_FALSE(rank_of({{"RANK", rank}, {"WORLD_SIZE", "4"}})) << rank;
  const auto other = rank_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  ASSERT_TRUE(other);
  EXPECT_STREQ(other->launcher->name, "PMI");
}

}  // namespace
}  // namespace lockstep::protocol
