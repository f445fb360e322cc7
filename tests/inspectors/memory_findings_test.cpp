// The findings about the memory of devices, from made-up facts.
#include "inspectors/memory/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMb = 1'000'000, kGb = 1'000'000'000;

RankMemory rank_with(int rank, int64_t allocated) {
  RankMemory memory;
  memory.rank = rank;
  memory.pid = 1000 + rank;
  memory.host = "here";
  memory.device.emplace();
  memory.device->device = "cuda:0";
  memory.device->bus_id = "0000:3" + std::to_string(rank) + ":00.0";
  memory.device->allocated = memory.device->peak = allocated;
  memory.device->reserved = allocated + kGb;
  memory.device->processes = {{.pid = 1000 + rank, .name = "lockstep-worker", .bytes = allocated}};
  return memory;
}

std::vector<Finding> judge(const std::vector<RankMemory>& ranks) {
  return memory_findings(
      {.inspector = "memory", .object = {}, .step = {}, .ranks = RankSet::all(static_cast<int>(ranks.size()))}, ranks);
}

TEST(MemoryFindings, NothingIsSaidOfRanksThatAreAlike) {
  EXPECT_THAT(judge({rank_with(0, 8 * kGb), rank_with(1, 8 * kGb + 50 * kMb)}), IsEmpty());
  EXPECT_THAT(judge({rank_with(0, 10 * kMb), rank_with(1, 60 * kMb)}), IsEmpty()) << "much more, of little";
  EXPECT_THAT(judge({rank_with(0, 80 * kGb)}), IsEmpty());
  RankMemory on_cpu;
  on_cpu.rank = 1;
  EXPECT_THAT(judge({rank_with(0, 80 * kGb), on_cpu}), IsEmpty()) << "a mixed group";
}

TEST(MemoryFindings, ARankThatHoldsMoreIsNamedWithWhatItIs) {
  std::vector<RankMemory> ranks = {rank_with(0, 4 * kGb), rank_with(1, 7 * kGb), rank_with(2, 4 * kGb)};
  for (RankMemory& each : ranks) each.tensors = {{"net", "parameter", "cuda:0", 10, 2 * kGb}};
  ranks[1].tensors.push_back({"losses", "tensor", "cuda:0", 900, 2 * kGb});
  ranks[1].tensors.push_back({"batches", "tensor", "cpu", 900, 9 * kGb});
  const auto found = judge(ranks);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].severity, Severity::note);
  EXPECT_EQ(found[0].verdict, Verdict::outlier);
  EXPECT_EQ(found[0].kind, FindingKind::device);
  EXPECT_EQ(found[0].ranks, RankSet{1});
  EXPECT_EQ(found[0].reference_ranks, (RankSet{0, 2}));
  EXPECT_EQ(
      found[0].message,
      "tensors of rank 1 take 7.00 GB on cuda:0, those of rank 0 4.00 GB: losses: tensors +2.00 GB, tensors without "
      "a name here +1.00 GB");
}

TEST(MemoryFindings, OfTwoRanksTheOneThatHoldsMore) {
  const auto found = judge({rank_with(0, 4 * kGb), rank_with(1, 2 * kGb)});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].ranks, RankSet{0});
  EXPECT_EQ(found[0].reference_ranks, RankSet{1});
}

TEST(MemoryFindings, FragmentationIsNamedWithTheLargestFreeBlock) {
  std::vector<RankMemory> ranks = {rank_with(0, 8 * kGb), rank_with(1, 8 * kGb)};
  ranks[0].device->split = 100 * kMb;
  ranks[1].device->split = 3 * kGb;
  ranks[1].device->largest_free = 40 * kMb;
  ranks[1].device->retries = 7;
  const auto found = judge(ranks);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].verdict, Verdict::unused);
  EXPECT_EQ(found[0].kind, FindingKind::storage);
  EXPECT_EQ(found[0].ranks, RankSet{1});
  EXPECT_THAT(found[0].message,
              HasSubstr("on rank 1 3.00 GB of the 9.00 GB that LibTorch has reserved on cuda:0 are free "
                        "in split blocks; the largest free block has 40.0 MB; 7 allocations gave"));
  EXPECT_THAT(found[0].message, HasSubstr("expandable_segments"));
  ranks[1].device->split = kGb;  // an eighth
  EXPECT_THAT(judge(ranks), IsEmpty());
}

TEST(MemoryFindings, OtherProgramsOnAGpuAreNamedAndRanksAreNone) {
  std::vector<RankMemory> ranks = {rank_with(0, kGb), rank_with(1, kGb)};
  // Two ranks on one GPU, and two programs that are none, one of which the driver does not say the memory of.
  for (RankMemory& each : ranks) {
    each.device->bus_id = "0000:30:00.0";
    each.device->processes = {{.pid = 1000, .name = "", .bytes = kGb},
                              {.pid = 1001, .name = "", .bytes = kGb},
                              {.pid = 77, .name = "", .bytes = {}},
                              {.pid = 4711, .name = "python", .bytes = 5 * kGb}};
  }
  const auto found = judge(ranks);
  ASSERT_EQ(found.size(), 1U) << "one for the GPU";
  EXPECT_EQ(found[0].verdict, Verdict::outlier);
  EXPECT_EQ(found[0].kind, FindingKind::environment);
  EXPECT_EQ(found[0].ranks, (RankSet{0, 1}));
  EXPECT_EQ(found[0].message,
            "on ranks 0-1 the GPU 0000:30:00.0 is used by other programs, too: 5.00 GB by pid 4711 (python), pid 77");
  EXPECT_EQ(memory_of_other_programs(ranks[0], ranks), 5 * kGb);
}

// Rule 10: in a container the driver's process numbers may be those of another namespace.
TEST(MemoryFindings, Rule10AListWithoutTheRankItselfProvesNothing) {
  std::vector<RankMemory> ranks = {rank_with(0, kGb)};
  ranks[0].device->processes = {{.pid = 4711, .name = "python", .bytes = 5 * kGb}};
  EXPECT_THAT(judge(ranks), IsEmpty());
  EXPECT_EQ(memory_of_other_programs(ranks[0], ranks), std::nullopt);
}

TEST(MemoryFindings, ProcessesOfAnotherMachineAreNoRanksOfThisOne) {
  std::vector<RankMemory> ranks = {rank_with(0, kGb), rank_with(1, kGb)};
  ranks[1].host = "there";
  ranks[0].device->processes.push_back({.pid = 1001, .name = "python", .bytes = kGb});
  const auto found = judge(ranks);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].ranks, RankSet{0});
  EXPECT_THAT(found[0].message, HasSubstr("pid 1001 (python)"));
}

TEST(MemoryFindings, FactsSurviveTheWayToOtherRanks) {
  RankMemory memory = rank_with(3, kGb);
  memory.device->split = 5;
  memory.device->used = 7;
  memory.device->total = 9;
  memory.device->retries = 2;
  memory.device->failures = 1;
  memory.device->segments = 12;
  const auto copy = nlohmann::json(memory).get<RankMemory>();
  EXPECT_EQ(nlohmann::json(copy), nlohmann::json(memory));
  EXPECT_EQ(copy.pid, 1003);
  EXPECT_EQ(copy.host, "here");
  ASSERT_TRUE(copy.device.has_value());
  EXPECT_EQ(copy.device->split, 5);
  EXPECT_EQ(copy.device->largest_free, std::nullopt);
  EXPECT_EQ(copy.device->processes, memory.device->processes);
  RankMemory on_cpu;
  EXPECT_FALSE(nlohmann::json(on_cpu).get<RankMemory>().device.has_value());
}

}  // namespace
}  // namespace lockstep::inspect
