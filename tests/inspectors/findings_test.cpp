// Findings from facts that are made up: no rank runs, nothing is exchanged.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "inspectors/data/findings.h"
#include "inspectors/findings/text.h"
#include "inspectors/lockstep/findings.h"
#include "inspectors/memory/memory.h"
#include "inspectors/nan/findings.h"
#include "inspectors/ranks/findings.h"
#include "inspectors/timing/buckets.h"
#include "inspectors/timing/time_sync_findings.h"
#include "inspectors/verify/findings.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

About about(const char* inspector, int ranks) {
  return {.inspector = inspector, .object = "it", .step = 5, .ranks = RankSet::all(ranks)};
}

/// As another rank gets them.
template <typename Facts>
Facts sent(const Facts& facts) {
  return nlohmann::json::from_cbor(nlohmann::json::to_cbor(nlohmann::json(facts))).template get<Facts>();
}

/// One operator's finding on the rank that has it.
Finding finding_at(Verdict verdict, const char* where) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.verdict = verdict;
  finding.where = where;
  finding.message = "log made " + std::string(to_string(verdict));
  return finding;
}

TEST(DataFindings, NameASampleThatTwoRanksRead) {
  const std::vector<DataFacts> facts(2, DataFacts{.size = 4});
  const DataJudgement judgement = data_findings(about("data", 2), facts, {.samples = {{0, 1}, {1, 3}}, .batches = {}});
  EXPECT_EQ(judgement.numbers.shared, 1);
  EXPECT_EQ(judgement.numbers.omitted, 1);
  ASSERT_EQ(judgement.findings.size(), 1U);
  EXPECT_EQ(judgement.findings[0].verdict, Verdict::duplicate_data);
  EXPECT_EQ(judgement.findings[0].step, 5);
  EXPECT_THAT(judgement.findings[0].message, HasSubstr("ranks 0-1 read 1 sample in common: 1"));
  EXPECT_THAT(judgement.findings[0].message, HasSubstr("1 of 4 samples is read by no rank: 2"));
}

TEST(DataFindings, NameTheRankThatRepeatsAnEpoch) {
  std::vector<DataFacts> facts(2, DataFacts{.size = 4, .epoch = 3});
  facts[1].repeated_epoch = 0;
  const DataJudgement judgement = data_findings(about("data", 2), facts, {.samples = {{0, 3}, {2, 1}}, .batches = {}});
  ASSERT_EQ(judgement.findings.size(), 1U);
  EXPECT_EQ(judgement.findings[0].ranks, RankSet{1});
  EXPECT_THAT(judgement.findings[0].message, HasSubstr("in epoch 3 rank 1 reads in the order of epoch 0"));
}

TEST(NanFindings, MergeRanksThatHaveTheSameAndLeaveOutThoseThatReceivedIt) {
  std::vector<NanFacts> facts(4);
  facts[0] = {.finding = finding_at(Verdict::nan, "cell 1, line 2"), .made_here = true};
  facts[1] = {.finding = finding_at(Verdict::nan, "cell 1, line 9"), .made_here = false};
  facts[3] = facts[0];
  const std::vector<Finding> findings = nan_findings(about("nan", 4), facts);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].ranks, (RankSet{0, 3}));
  EXPECT_EQ(findings[0].reference_ranks, (RankSet{1, 2}));
  EXPECT_EQ(findings[0].message, "on ranks 0,3 log made nan");
  EXPECT_EQ(nan_findings(about("nan", 2), {{.operators = 8}, {.operators = 9, .harmless = 2}})[0].message,
            "no NaN or Inf reached a result on ranks 0-1: 9 operators, 2 of which made some that were not used "
            "(masked, for example)");
}

TEST(LockstepFindings, KeepTheRankAtWhichAStepFirstDoesNotRepeatItself) {
  std::vector<SelfFacts> facts(3);
  facts[0] = {.finding = finding_at(Verdict::mismatch, "cell 1, line 2"), .collectives = 4};
  facts[0].finding->severity = Severity::note;
  facts[1] = {.finding = finding_at(Verdict::mismatch, "cell 1, line 1"), .collectives = 1};
  facts[2].collectives = 100;
  const std::vector<Finding> findings = self_findings(about("lockstep", 3), facts, 1000);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].ranks, RankSet{1});
  EXPECT_EQ(findings[0].reference_ranks, RankSet{2});
}

TEST(RanksFindings, AreOkOnlyWhereIdentitiesAgree) {
  std::vector<RankIdentity> identities(2);
  for (int rank = 0; rank < 2; ++rank) {
    identities[static_cast<size_t>(rank)].rank = rank;
    identities[static_cast<size_t>(rank)].world_size = 2;
    identities[static_cast<size_t>(rank)].pid = 100 + rank;
    identities[static_cast<size_t>(rank)].device = "cpu";
  }
  EXPECT_EQ(ranks_findings(about("ranks", 2), identities)[0].verdict, Verdict::ok);
  identities[1].versions["LibTorch"] = "2.12.0";
  const std::vector<Finding> findings = ranks_findings(about("ranks", 2), identities);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].verdict, Verdict::mismatch);
  EXPECT_EQ(findings[0].kind, FindingKind::version);
  identities[0].code["cell 3"] = "a";
  identities[1].code["cell 3"] = "b";
  EXPECT_THAT(cells_that_differ(identities), ElementsAre("cell 3"));
}

TEST(TimeSyncFindings, NameAStraggler) {
  std::vector<TimeSyncFacts> facts;
  for (const int rank : {0, 1, 2})
    facts.push_back({.times = {.rank = rank,
                               .synchronised = {0.030, 0.030, 0.031},
                               .unsynchronised = rank == 1 ? Spread{0.020, 0.019, 0.021} : Spread{0.010, 0.010, 0.011}},
                     .reduction = Spread{0.004 + 0.001 * rank, 0.004, 0.005}});
  TimeSyncReport report = time_sync_numbers(facts);
  EXPECT_EQ(report.slowest, 1);
  EXPECT_DOUBLE_EQ(report.reduction->median, 0.006);
  const std::vector<Finding> findings = time_sync_findings(about("time_sync", 3), report, 1.2);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[1].verdict, Verdict::straggler);
  EXPECT_EQ(findings[1].ranks, RankSet{1});
  EXPECT_THAT(findings[1].message, ::testing::HasSubstr(", 2.0 times the median of the others"));
  EXPECT_EQ(above_median_text(0.89), "89% more than the median");
  EXPECT_EQ(above_median_text(93.49), "94 times the median");
  EXPECT_EQ(time_sync_findings(about("time_sync", 3), report, 3).size(), 1U);
}

TEST(Facts, ArriveAsTheyWereSent) {
  const DataFacts data = sent(DataFacts{.repeated_epoch = 2, .has_batches = true, .size = 7, .join = true});
  EXPECT_EQ(data.repeated_epoch, 2);
  EXPECT_TRUE(data.has_batches && data.join && !data.repeats_last_call);
  EXPECT_EQ(data.size, 7);
  EXPECT_FALSE(data.batch_size);

  RankMemory memory{.rank = 3, .resident = 10, .tensors = {{"net", "parameter", "cpu", 2, 80}}};
  memory.watched = {.cells = {{1, 2, 30, 40, -5}}, .steps = 6, .growth_per_step = 7};
  memory = sent(memory);
  EXPECT_EQ(memory.rank, 3);
  EXPECT_FALSE(memory.device);
  EXPECT_EQ(memory.tensors.at(0).bytes, 80);
  EXPECT_EQ(memory.watched->cells.at(0).kept, -5);
  EXPECT_EQ(memory.watched->growth_per_step, 7);

  const NanFacts nan =
      sent(NanFacts{.finding = finding_at(Verdict::inf, "cell 2, line 1"), .made_here = true, .operators = 4});
  EXPECT_EQ(nan.finding->where, "cell 2, line 1");
  EXPECT_EQ(nan.operators, 4);
  EXPECT_FALSE(sent(NanFacts{}).finding);

  const RunFacts run = sent(RunFacts{.digest = {1, ~uint64_t{0}}, .operators = 2, .may_overflow = {{"default", 3}}});
  EXPECT_TRUE(run.same_run({.digest = {1, ~uint64_t{0}}, .operators = 2}));
  EXPECT_EQ(run.may_overflow.at(0).second, 3);
  EXPECT_EQ(sent(SelfFacts{.collectives = 8, .left_out = 1}).collectives, 8);

  const VerifyFacts verify = sent(VerifyFacts{.structure = {1, 2}, .content = {3, 4}, .out_of_data = true});
  EXPECT_EQ(verify.content, (Hash{3, 4}));
  EXPECT_TRUE(verify.out_of_data && !verify.buffers_written);

  const RankBuckets buckets = sent(RankBuckets{.rank = 1, .buckets = {{.ready = 0.5, .start = 0.75, .end = {}}}});
  EXPECT_EQ(buckets.buckets.at(0).start, 0.75);
  EXPECT_FALSE(buckets.buckets.at(0).end || buckets.hidden);

  const TimeSyncFacts times = sent(TimeSyncFacts{.times = {.rank = 1, .synchronised = {1, 2, 3}}, .reduction = {}});
  EXPECT_EQ(times.times.synchronised.high, 3);
  EXPECT_FALSE(times.reduction);
}

}  // namespace
}  // namespace lockstep::inspect
