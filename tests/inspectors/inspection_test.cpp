// What all inspectors have in common: their options, and the one exchange that names ranks which did not come or called
// something else.
#include "inspectors/exchange/inspection.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "lockstep/inspect.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;

constexpr std::chrono::minutes kDeadline(5);

struct PlainOptions : InspectOptionsOf<PlainOptions> {};

TEST(InspectOptions, ChainWithThoseOfTheInspectorInAnyOrder) {
  const auto options = VerifyOptions()
                           .name("net")
                           .method(Method::kBroadcast)
                           .deadline(std::chrono::seconds(5))
                           .ranks(RankSet{0, 2})
                           .rtol(0.5)
                           .step(7)
                           .publish(false);
  EXPECT_EQ(options.name(), "net");
  EXPECT_EQ(options.method(), Method::kBroadcast);
  EXPECT_EQ(options.deadline(), std::chrono::seconds(5));
  EXPECT_EQ(options.ranks(), (RankSet{0, 2}));
  EXPECT_EQ(options.step(), 7);
  EXPECT_FALSE(options.publish());
  const auto others = GradsOptions().same_ranks_as(options).name("loss").local(true);
  EXPECT_EQ(others.ranks(), (RankSet{0, 2}));
  EXPECT_EQ(others.deadline(), std::chrono::seconds(5));
  EXPECT_EQ(others.step(), 7);
  EXPECT_EQ(others.name(), "loss");
  EXPECT_TRUE(others.publish());
  EXPECT_EQ(TimeSyncOptions().name(), "step");
}

TEST(Inspection, WhatInspectorsReturnCanBePrinted) {
  const auto text = [](const auto& value) {
    std::ostringstream out;
    out << value;
    return out.str();
  };
  EXPECT_EQ(text(FindingOp{.name = "all_reduce", .seq = 12, .shape = {2, 3}, .dtype = "float32", .group = "default"}),
            "all_reduce #12 of group default, [2, 3] float32");
  EXPECT_EQ(text(FindingOp{.name = "barrier", .seq = 1, .group = "evens"}), "barrier #1 of group evens");
  EXPECT_EQ(text(FindingTensor{.name = "fc.weight"}), "fc.weight");
  EXPECT_EQ(text(Severity::fault) + " " + text(RankSet{0, 1}), "fault 0-1");
  EXPECT_THAT(text(fingerprint(torch::full({4}, 2.0))), HasSubstr(", norm 4, largest magnitude 2, 0 NaN, 0 Inf"));
  EXPECT_EQ(text(DataReport()) + text(Report()), "");
}

TEST(Inspection, FindingsOfAProgramWithoutASinkGoToStderr) {
  Report report;
  report.findings = {
      About{.inspector = "verify", .object = "net", .ranks = RankSet{0, 1}}.finding(Severity::fault, Verdict::mismatch),
      About{.inspector = "verify", .object = "fine"}.finding(Severity::note, Verdict::ok)};
  report.findings[0].message = "ranks 0-1 differ";
  report.findings[0].tensors = {
      {.name = "fc.weight", .dtype = "float32", .shape = {2, 3}, .count = 1, .first = {0, 2}}};
  report.findings[0].where = "train.cpp:12";
  const auto written = [&] {
    ::testing::internal::CaptureStderr();
    publish(report);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(written(),
            "verify mismatch: net: ranks 0-1 differ\n"
            "    fc.weight [2, 3] float32, 1 element, first at [0, 2]\n"
            "    at train.cpp:12\n");
  int taken = 0;
  set_finding_sink([&](const Finding&) { ++taken; });
  EXPECT_EQ(written(), "");
  EXPECT_EQ(taken, 2);
  set_finding_sink({});
}

TEST(Inspection, HandsTheFactsOfAllToAllAndPublishesFromTheLowestRank) {
  std::mutex mutex;
  std::vector<Finding> published;
  set_finding_sink([&](const Finding& finding) {
    const std::lock_guard lock(mutex);
    published.push_back(finding);
  });
  spawn_ranks(3, [](int rank, int) {
    Inspection inspection({.inspector = "test", .object = "it"},
                          PlainOptions().deadline(kDeadline).step(4).ranks(RankSet{1, 2}));
    EXPECT_EQ(inspection.takes_part(), rank != 0);
    if (rank == 0) return;
    const auto facts = inspection.exchange_facts(rank * 10);
    ASSERT_TRUE(facts);
    EXPECT_THAT(*facts, ElementsAre(10, 20));
    EXPECT_THAT(inspection.exchange().gather_text(std::string(static_cast<size_t>(rank), 'x')), ElementsAre("x", "xx"));
    inspection.add(inspection.about().finding(Severity::fault, Verdict::mismatch));
    EXPECT_TRUE(inspection.has_fault());
    Report report;
    inspection.conclude(report);
    EXPECT_EQ(report.took_part, (RankSet{1, 2}));
    EXPECT_EQ(report.findings.size(), 1U);
  });
  set_finding_sink({});
  ASSERT_EQ(published.size(), 1U);
  EXPECT_EQ(published[0].object, "it");
  EXPECT_EQ(published[0].step, 4);
  EXPECT_EQ(published[0].ranks, (RankSet{1, 2}));
}

TEST(Inspection, GoesOnWithoutRanksThatAreLeftOut) {
  spawn_ranks(3, [](int rank, int) {
    Inspection inspection({.inspector = "test"}, PlainOptions().deadline(kDeadline));
    ASSERT_TRUE(inspection.exchange_facts(rank));
    inspection.leave_out(RankSet{0});
    EXPECT_EQ(inspection.takes_part(), rank != 0);
    if (rank != 0) {
      const auto all = inspection.exchange().gather_integers({rank, rank});
      EXPECT_THAT(all, ElementsAre(ElementsAre(1, 1), ElementsAre(2, 2)));
      EXPECT_EQ(inspection.rank_index(), static_cast<size_t>(rank - 1));
    }
    Report report;
    inspection.conclude(report);
    EXPECT_EQ(report.took_part, (RankSet{1, 2}));
  });
}

TEST(Inspection, NamesRanksThatDidNotCome) {
  spawn_ranks(3, [](int rank, int) {
    if (rank == 1) return;
    const Report report = memory({}, MemoryOptions().deadline(std::chrono::seconds(2)).publish(false));
    ASSERT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].inspector, "memory");
    EXPECT_EQ(report.findings[0].verdict, Verdict::missing);
    EXPECT_EQ(report.findings[0].kind, FindingKind::call);
    EXPECT_EQ(report.findings[0].ranks, RankSet{1});
    EXPECT_EQ(report.findings[0].reference_ranks, (RankSet{0, 2}));
    EXPECT_EQ(report.findings[0].message,
              "rank 1 did not call memory within 2 s; ranks 0,2 did. Every rank has to call it, for the same thing");
    EXPECT_EQ(report.took_part, (RankSet{0, 2}));
  });
}

TEST(Inspection, NamesWhatEachRankCalledWhereThatDiffers) {
  spawn_ranks(4, [](int rank, int) {
    const torch::Tensor tensor = torch::ones({2});
    Report report;
    switch (rank) {
      case 0:
        report = verify(tensor, VerifyOptions().name("w").deadline(kDeadline).publish(false));
        break;
      case 1:
        report = data(tensor.to(torch::kLong), DataOptions().name("w").deadline(kDeadline).publish(false));
        break;
      case 2:
        report = replay([] {}, NanOptions().deadline(kDeadline).publish(false));
        break;
      default:
        report = lockstep_ranks([] {}, LockstepOptions().deadline(kDeadline).publish(false));
    }
    ASSERT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].verdict, Verdict::order_mismatch);
    EXPECT_EQ(report.findings[0].kind, FindingKind::call);
    EXPECT_EQ(report.findings[0].ranks, RankSet::all(4));
    EXPECT_EQ(report.findings[0].message,
              "ranks called inspectors for different things at the same time: rank 0 for verify of `w`, "
              "rank 1 for data of `w`, rank 2 for nan, rank 3 for lockstep");
  });
}

TEST(Inspection, NamesHowEachRankCompares) {
  spawn_ranks(2, [](int rank, int) {
    const auto options = VerifyOptions().name("w").deadline(kDeadline).publish(false);
    const Report report =
        verify(torch::ones({2}), VerifyOptions(options).method(rank == 0 ? Method::kFingerprint : Method::kBroadcast));
    ASSERT_EQ(report.findings.size(), 1U) << report;
    EXPECT_EQ(report.findings[0].message,
              "ranks called verify for different things at the same time: rank 0 for `w`, a tensor by fingerprint, "
              "rank 1 for `w`, a tensor by broadcast");
    EXPECT_TRUE(verify(torch::ones({2}), options).ok());
  });
}

TEST(Inspection, RefusesRanksThatAreNotThere) {
  spawn_ranks(2, [](int, int) {
    try {
      ranks(RanksOptions().ranks(RankSet{0, 7}));
      ADD_FAILURE() << "inspected";
    } catch (const lockstep::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("inspect::ranks: there is no rank 7; ranks are 0-1"));
    }
  });
}

}  // namespace
}  // namespace lockstep::inspect
