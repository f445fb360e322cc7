// ranks: what identities say about one another, and the two ways of gathering them.
#include "inspectors/ranks/ranks.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "inspectors/ranks/findings.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

RanksOptions ranks_options() { return RanksOptions().deadline(std::chrono::minutes(5)); }

/// As they are in a job that is well: two hosts, two devices each.
std::vector<RankIdentity> healthy() {
  std::vector<RankIdentity> identities;
  for (int rank = 0; rank < 4; ++rank) {
    RankIdentity each;
    each.rank = rank;
    each.world_size = 4;
    each.local_rank = rank % 2;
    each.node_rank = rank / 2;
    each.pid = 100 + rank;
    each.host = each.machine = rank < 2 ? "left" : "right";
    each.backend = "nccl";
    each.device = "cuda:" + std::to_string(rank % 2);
    each.device_id = "0000:0" + std::to_string(rank % 2) + ":00.0";
    each.cpu = "AVX512";
    each.threads = 4;
    each.environment = {{"NCCL_DEBUG", "INFO"}, {"OMP_NUM_THREADS", "4"}};
    each.versions = {{"LibTorch", "2.11.0"}};
    each.code = {{"program", "aa"}, {"liblockstep", "ab"}, {"cell 1", "bb"}};
    each.settings = {{"default dtype", "float"}};
    identities.push_back(each);
  }
  return identities;
}

std::vector<Finding> compare(const std::function<void(std::vector<RankIdentity>&)>& change) {
  std::vector<RankIdentity> identities = healthy();
  change(identities);
  return compare_identities(identities, RankSet::all(4));
}

Finding only(const std::vector<Finding>& findings, Severity severity) {
  EXPECT_EQ(findings.size(), 1U) << Report{.findings = findings};
  if (findings.empty()) return {};
  EXPECT_EQ(findings[0].severity, severity) << findings[0].message;
  return findings[0];
}

TEST(Ranks, AHealthyJobHasNothingToSay) {
  EXPECT_TRUE(compare([](auto&) {}).empty());
}

TEST(Ranks, OneThatIsDoubledLeavesAnotherMissing) {
  const auto findings = compare([](auto& all) {
    all[2].rank = 1;
    all[2].local_rank = 0;
  });
  ASSERT_EQ(findings.size(), 2U) << Report{.findings = findings};
  EXPECT_EQ(findings[0].kind, FindingKind::rank);
  EXPECT_EQ(findings[0].ranks, RankSet{1});
  EXPECT_THAT(findings[0].message, HasSubstr("process 101 on left and process 102 on right"));
  EXPECT_EQ(findings[1].verdict, Verdict::missing);
  EXPECT_EQ(findings[1].ranks, RankSet{2});
}

TEST(Ranks, WhatFollowsFromAVariableIsSaidWithIt) {
  const Finding set = only(compare([](auto& all) {
                             for (auto& each : all) each.device = "cpu", each.device_id = "";
                             all[2].environment["ATEN_CPU_CAPABILITY"] = "avx2";
                             all[2].cpu = "AVX2";
                           }),
                           Severity::fault);
  EXPECT_EQ(set.kind, FindingKind::environment);
  EXPECT_EQ(set.ranks, RankSet{2});
  EXPECT_THAT(set.message,
              HasSubstr("ATEN_CPU_CAPABILITY: not set on ranks 0-1,3, avx2 on rank 2; because of that instruction "
                        "set of LibTorch's kernels: AVX2 on rank 2, AVX512 on ranks 0-1,3"));
  const Finding threads = only(compare([](auto& all) {
                                 all[1].environment["OMP_NUM_THREADS"] = "2";
                                 all[1].threads = 2;
                               }),
                               Severity::note);
  EXPECT_THAT(threads.message, HasSubstr("because of that threads of an operator: 2 on rank 1"));
  // Of another rank: no consequence.
  EXPECT_EQ(compare([](auto& all) {
              all[1].environment["OMP_NUM_THREADS"] = "2";
              all[3].threads = 2;
            }).size(),
            2U);
}

TEST(Ranks, TheFunctionWhoseCodeDiffersIsNamed) {
  const Finding used = only(compare([](auto& all) {
                              for (auto& each : all)
                                each.cells["cell 1"] = {.uses = {{"scale(double)", "cell 0"}, {"x", "cell 0"}},
                                                        .functions = {{"train()", "16 aa"}}};
                              all[3].code["cell 1"] = "cc";
                              all[3].cells["cell 1"].uses["scale(double)"] = "cell 7";
                              all[3].cells["cell 1"].functions["train()"] = "16 bb";
                            }),
                            Severity::fault);
  EXPECT_EQ(used.ranks, RankSet{3});
  EXPECT_THAT(used.message, HasSubstr("scale(double) as called by cell 1: cell 0 on ranks 0-2, cell 7 on rank 3"));
  const Finding own = only(
      compare([](auto& all) {
        for (auto& each : all)
          each.cells["cell 1"] = {.uses = {}, .functions = {{"train()", "16 aa"}, {"test()", "16 aa"}, {"f()", "4 a"}}};
        all[3].code["cell 1"] = "cc";
        all[3].cells["cell 1"].functions["train()"] = "24 bb";
        all[3].cells["cell 1"].functions["test()"] = "16 bb";  // a call in it has moved
      }),
      Severity::fault);
  EXPECT_THAT(own.message, HasSubstr("cell 1 (train()): bb on ranks 0-2, cc on rank 3"));
}

TEST(Ranks, ADeviceThatTwoRanksUseIsAFaultForNcclAndANoteForGloo) {
  const auto same = [](auto& all) { all[1].device_id = all[0].device_id; };
  const Finding found = only(compare(same), Severity::fault);
  EXPECT_EQ(found.kind, FindingKind::device);
  EXPECT_EQ(found.ranks, (RankSet{0, 1}));
  only(compare([&](auto& all) {
         same(all);
         for (RankIdentity& each : all) each.backend = "gloo";
       }),
       Severity::note);
}

TEST(Ranks, ALocalRankTwiceOnOneHostIsAFault) {
  const Finding found = only(compare([](auto& all) { all[3].local_rank = 0; }), Severity::fault);
  EXPECT_EQ(found.kind, FindingKind::local_rank);
  EXPECT_EQ(found.ranks, (RankSet{2, 3}));
}

TEST(Ranks, VariablesThatDecideAreFaultsAndOthersNotes) {
  const Finding fault = only(compare([](auto& all) { all[2].environment["NCCL_ALGO"] = "Ring"; }), Severity::fault);
  EXPECT_EQ(fault.kind, FindingKind::environment);
  EXPECT_EQ(fault.ranks, RankSet{2});
  EXPECT_EQ(fault.reference_ranks, (RankSet{0, 1, 3}));
  EXPECT_THAT(fault.message, HasSubstr("NCCL_ALGO: not set on ranks 0-1,3, Ring on rank 2"));
  only(compare([](auto& all) { all[2].environment["OMP_NUM_THREADS"] = "1"; }), Severity::note);
  EXPECT_EQ(weight_of_variable("CUDA_VISIBLE_DEVICES"), Weight::kIgnored);
  EXPECT_EQ(weight_of_variable("HOME"), Weight::kIgnored);
}

TEST(Ranks, WithoutAMajorityAllAreListedAndNoneIsRight) {
  const Finding found =
      only(compare([](auto& all) { all[0].versions["LibTorch"] = all[1].versions["LibTorch"] = "2.12.0"; }),
           Severity::fault);
  EXPECT_EQ(found.kind, FindingKind::version);
  EXPECT_EQ(found.ranks, RankSet::all(4));
  EXPECT_TRUE(found.reference_ranks.empty());
}

TEST(Ranks, ACellOnSomeRanksIsANoteAndOtherCodeUnderItsNumberAFault) {
  only(compare([](auto& all) { all[0].code["cell 2"] = "cc"; }), Severity::note);
  const Finding found = only(compare([](auto& all) { all[3].code["cell 1"] = "cc"; }), Severity::fault);
  EXPECT_EQ(found.kind, FindingKind::code);
  EXPECT_EQ(found.ranks, RankSet{3});
}

TEST(Ranks, WhatTheSameRanksDifferInIsOneFinding) {
  const Finding found = only(compare([](auto& all) {
                               all[1].code["program"] = "dd";
                               all[1].code["liblockstep"] = "ee";
                             }),
                             Severity::fault);
  EXPECT_THAT(found.message, HasSubstr("program: "));
}

TEST(Ranks, AGroupsRanksAgree) {
  spawn_ranks(3, [](int rank, int) {
    const RanksReport report = ranks(ranks_options());
    ASSERT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].verdict, Verdict::ok);
    ASSERT_EQ(report.identities.size(), 3U);
    EXPECT_EQ(report.identities[static_cast<size_t>(rank)].rank, rank);
    EXPECT_FALSE(report.identities[0].versions.at("LibTorch").empty());
    EXPECT_FALSE(report.identities[0].code.at("program").empty());
    std::ostringstream table;
    table << report;
    EXPECT_THAT(table.str(), HasSubstr("gloo"));
  });
}

TEST(Ranks, AnotherSettingOnOneRankIsFound) {
  testing::spawn_processes(2, [](int rank, int) {
    if (rank == 1) at::globalContext().setDeterministicAlgorithms(true, false);
    const RanksReport report = ranks(ranks_options());
    ASSERT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].kind, FindingKind::setting);
    EXPECT_THAT(report.findings[0].message, HasSubstr("deterministic algorithms: off on rank 0, on on rank 1"));
  });
}

TEST(Ranks, ProcessesThatShareOnlyAStoreAreToldApart) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<RanksReport> reports;
  for (const int rank : {0, 1, 1}) {
    threads.emplace_back([&, rank] {
      RanksReport report = ranks(store, rank, 3, ranks_options().publish(false));
      const std::lock_guard lock(mutex);
      reports.push_back(std::move(report));
    });
  }
  for (std::thread& each : threads) each.join();
  for (const RanksReport& report : reports) {
    EXPECT_EQ(report.identities.size(), 3U);
    ASSERT_GE(report.findings.size(), 2U) << report;
    EXPECT_THAT(report.findings[0].message, HasSubstr("2 processes have rank 1"));
    EXPECT_EQ(report.findings[1].verdict, Verdict::missing);
    EXPECT_EQ(report.findings[1].ranks, RankSet{2});
  }
}

TEST(Ranks, AnIdentityComesBackFromItsJson) {
  const RankIdentity mine = own_identity();
  const nlohmann::json json = mine;
  EXPECT_EQ(nlohmann::json(json.get<RankIdentity>()), json);
}

}  // namespace
}  // namespace lockstep::inspect
