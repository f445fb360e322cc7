// What NCCL and c10d say is joined to what the logs say: named by its source, and beside them where it differs.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "collectives/log/collective_log.h"
#include "inspectors/evidence/async_errors.h"
#include "inspectors/hang/hang.h"
#include "inspectors/hang/join.h"
#include "inspectors/hang/state.h"
#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kClock = 1'795'000'000 * int64_t{1'000'000'000};  // CLOCK_REALTIME - CLOCK_MONOTONIC

/// Ranks whose clocks are known, in a group of c10d's name.
MadeUp with_clocks(int size) {
  MadeUp ranks(size);
  for (RankPicture& rank : ranks.picture.ranks) rank.realtime_minus_monotonic = kClock;
  return ranks;
}

/// The recorder's entry of the newest record of a rank.
EvidenceCall entry_of(const MadeUp& ranks, int rank, EvidenceState state, bool starts = true) {
  const dist::CollectiveRecord& record = ranks.picture.rank(rank)->recent.back();
  EvidenceCall call;
  call.group = "0";
  call.group_description = "default_pg";
  call.seq = record.seq;
  call.op = record.op;
  call.state = state;
  call.created_ns = record.entered_ns + kClock + 5'000;
  if (starts && state != EvidenceState::scheduled) call.started_ns = call.created_ns + 1;
  return call;
}

void add_dump(MadeUp& ranks, int rank, std::vector<EvidenceCall> calls) {
  Evidence dump;
  dump.source = EvidenceSource::flight_recorder;
  dump.rank = rank;
  dump.calls = std::move(calls);
  ranks.picture.evidence.push_back(std::move(dump));
}

/// An answer of RAS about the group of all ranks, with that many all-reduces by rank.
EvidenceGroup& add_ras(MadeUp& ranks, const std::vector<int64_t>& counts) {
  Evidence answer;
  answer.source = EvidenceSource::ras;
  EvidenceGroup group;
  group.size = static_cast<int>(counts.size());
  for (int rank = 0; rank < group.size; ++rank) {
    EvidenceMember member;
    member.group_rank = member.rank = rank;
    member.counts["all_reduce"] = counts[static_cast<size_t>(rank)];
    group.members.push_back(member);
    group.ranks.push_back(rank);
  }
  answer.groups.push_back(std::move(group));
  ranks.picture.evidence.push_back(std::move(answer));
  return ranks.picture.evidence.back().groups[0];
}

std::vector<std::string> said(const MadeUp& ranks, int rank = 0) {
  return evidence_on(ranks.picture, ranks.picture.rank(rank)->waits.front().call);
}

TEST(HangEvidence, TheRecorderSaysOnWhichRanksACallHasStarted) {
  MadeUp ranks = with_clocks(4);
  for (const int rank : {0, 1, 3}) {
    ranks.enters(rank, "all_reduce");
    add_dump(ranks, rank, {entry_of(ranks, rank, rank == 3 ? EvidenceState::scheduled : EvidenceState::started)});
  }
  ranks.finishes(2);
  EXPECT_THAT(proven_hang(ranks).message,
              HasSubstr("; the Flight Recorder has it as started on ranks 0-1 and as scheduled on rank 3"));
}

TEST(HangEvidence, ARecorderWithoutStartsSaysSo) {
  MadeUp ranks = with_clocks(2);
  ranks.enters(0, "all_reduce");
  add_dump(ranks, 0, {entry_of(ranks, 0, EvidenceState::scheduled)});
  EXPECT_THAT(said(ranks), ElementsAre("the Flight Recorder has it as scheduled on rank 0 (it records no starts, which "
                                       "TORCH_NCCL_ENABLE_TIMING=1 switches on)"));
}

TEST(HangEvidence, ACallIsFoundByItsTimeAndNotByItsNumber) {
  MadeUp ranks = with_clocks(2);
  ranks.enters(0, "all_reduce");
  EvidenceCall call = entry_of(ranks, 0, EvidenceState::started);
  call.seq = 41;  // c10d began again, or counted the parts of calls of objects
  EvidenceCall older = call;
  older.seq = 1;
  older.state = EvidenceState::completed;
  older.created_ns -= 10'000'000'000;
  add_dump(ranks, 0, {older, call});
  EXPECT_THAT(said(ranks), ElementsAre("the Flight Recorder has it as started on rank 0"));
}

TEST(HangEvidence, WithoutClocksTheNumberDecides) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce");
  add_dump(ranks, 0, {entry_of(ranks, 0, EvidenceState::started)});
  EXPECT_THAT(said(ranks), ElementsAre("the Flight Recorder has it as started on rank 0"));
}

TEST(HangEvidence, ACallThatOnlyTheRecorderHasIsSaidBesideTheLog) {
  MadeUp ranks = with_clocks(2);
  ranks.enters(0, "all_reduce");
  ranks.done(1, "broadcast");
  // The log of rank 1 lacks a broadcast: made through another way than Lockstep's groups.
  ranks.group(1, "default").entered = 0;
  EvidenceCall logged = entry_of(ranks, 1, EvidenceState::completed), more = logged;
  more.seq += 1;
  more.op = "all_reduce";
  more.state = EvidenceState::scheduled;
  more.created_ns += 1'000'000'000;
  ranks.at(1).recent.back().seq = 0;
  add_dump(ranks, 1, {logged, more});
  EXPECT_THAT(said(ranks),
              ElementsAre(AllOf(HasSubstr("the log of rank 1 has no all_reduce #1"),
                                HasSubstr("its Flight Recorder has a later all_reduce (2), as scheduled"))));
}

TEST(HangEvidence, ACallThatTheRecorderLacksIsSaidBesideTheLog) {
  MadeUp ranks = with_clocks(2);
  ranks.enters(0, "all_reduce");
  add_dump(ranks, 0, {});
  EXPECT_THAT(said(ranks), ElementsAre("the Flight Recorder of rank 0 has no record of it, though that rank's log has "
                                       "entered it"));
}

TEST(HangEvidence, DifferentStatesAreBothSaid) {
  MadeUp ranks = with_clocks(2);
  ranks.enters(0, "all_reduce");
  add_dump(ranks, 0, {entry_of(ranks, 0, EvidenceState::completed)});
  EXPECT_THAT(said(ranks), ElementsAre("the Flight Recorder has it as completed on rank 0",
                                       "the log of rank 0 has it in flight, its Flight Recorder as completed"));
}

TEST(HangEvidence, RasCountsAndDeathsAreNamed) {
  MadeUp ranks = with_clocks(3);
  ranks.enters(0, "all_reduce");
  ranks.enters(1, "all_reduce");
  ranks.dies(2);
  EvidenceGroup& world = add_ras(ranks, {17, 17, 16});
  world.members[2].missing = world.members[2].dead = true;
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.verdict, Verdict::dead);
  EXPECT_THAT(finding.message, HasSubstr("NCCL's RAS considers rank 2 dead"));
  EXPECT_THAT(finding.message, Not(HasSubstr("process runs")));
  EXPECT_THAT(evidence_findings(ranks.picture), IsEmpty()) << "the logs say it, too";
}

TEST(HangEvidence, RasCountsAreNamedByRank) {
  MadeUp ranks = with_clocks(3);
  ranks.enters(0, "all_reduce");
  ranks.enters(1, "all_reduce");
  add_ras(ranks, {17, 17, 16});
  EXPECT_THAT(said(ranks), ElementsAre("NCCL's RAS counts 17 all_reduce launched on ranks 0-1 and 16 on rank 2"));
}

TEST(HangEvidence, RasThatCountsACallWhichTheLogLacksIsSaidBesideIt) {
  MadeUp ranks = with_clocks(2);
  ranks.enters(0, "all_reduce");
  add_ras(ranks, {17, 17});
  EXPECT_THAT(said(ranks),
              ElementsAre("NCCL's RAS counts 17 all_reduce launched on every rank, though by its log rank 1 "
                          "has not entered this one"));
}

TEST(HangEvidence, RasThatGivesUpALivingRankIsANoteAndBothAreSaid) {
  MadeUp ranks = with_clocks(2);
  ranks.enters(0, "all_reduce");
  EvidenceGroup& world = add_ras(ranks, {17, 16});
  world.members[1].missing = world.members[1].dead = true;
  EXPECT_THAT(said(ranks), ElementsAre("NCCL's RAS considers rank 1 dead, though its process runs"));
  const auto findings = evidence_findings(ranks.picture);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::note);
  EXPECT_EQ(findings[0].verdict, Verdict::dead);
  EXPECT_EQ(findings[0].kind, FindingKind::communicator);
  EXPECT_EQ(findings[0].ranks, RankSet{1});
  expect_no_hang(ranks);
}

TEST(HangEvidence, EvidenceAloneProvesNoHang) {
  MadeUp ranks = with_clocks(2);
  ranks.enters(0, "all_reduce");
  add_dump(ranks, 0, {entry_of(ranks, 0, EvidenceState::started)});
  add_ras(ranks, {17, 16});
  expect_no_hang(ranks);
}

TEST(HangEvidence, EvidenceOfAnotherGroupIsNotTaken) {
  MadeUp ranks = with_clocks(3);
  ranks.add_group("pair", {0, 1});
  ranks.enters(0, "all_reduce", "pair");
  add_dump(ranks, 0, {entry_of(ranks, 0, EvidenceState::started)});  // of default_pg
  add_ras(ranks, {17, 17, 16});
  EXPECT_THAT(said(ranks), ElementsAre("the Flight Recorder of rank 0 has no record of it, though that rank's log has "
                                       "entered it"));
}

TEST(HangEvidence, AGroupIsKnownByItsRanksIfNoOtherHasThem) {
  MadeUp ranks = with_clocks(3);
  ranks.add_group("pair", {0, 1});
  ranks.enters(0, "all_reduce", "pair");
  EvidenceCall call = entry_of(ranks, 0, EvidenceState::started);
  call.group = "9";
  call.group_description = "undefined";
  add_dump(ranks, 0, {call});
  ranks.picture.evidence[0].groups.push_back(
      {.name = "9", .description = {}, .size = 2, .ranks = {0, 1}, .members = {}});
  EXPECT_THAT(said(ranks), ElementsAre("the Flight Recorder has it as started on rank 0"));
  ranks.add_group("again", {0, 1});
  EXPECT_THAT(said(ranks), ElementsAre(HasSubstr("has no record of it"))) << "either group may be meant";
}

TEST(HangEvidence, TheFirstErrorIsTheCauseAndTheOthersItsConsequences) {
  MadeUp ranks = with_clocks(4);
  Evidence errors;
  errors.source = EvidenceSource::async_error;
  const int64_t now = ranks.picture.now_ns + kClock;
  errors.errors = {
      {.rank = 3,
       .group = "default",
       .time_ns = now - 4'000'000'000,
       .error = "remote error",
       .remote = true,
       .peer = 1},
      {.rank = 1, .group = "default", .time_ns = now - 3'000'000'000, .error = "system error"},
      {.rank = 0, .group = "default", .time_ns = now - 1'000'000'000, .error = "remote error", .remote = true}};
  ranks.picture.evidence.push_back(errors);
  const auto findings = evidence_findings(ranks.picture);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::fault);
  EXPECT_EQ(findings[0].kind, FindingKind::communicator);
  EXPECT_EQ(findings[0].ranks, RankSet{1});
  EXPECT_EQ(findings[0].message,
            "NCCL reports on rank 1: system error in group default 3.0 s ago; errors of ranks 0,3 came after it");
}

TEST(HangEvidence, ARemoteErrorThatNamesItsPeerBlamesThePeer) {
  MadeUp ranks = with_clocks(2);
  Evidence errors;
  errors.source = EvidenceSource::async_error;
  errors.errors = {{.rank = 0, .group = "default", .time_ns = 1, .error = "remote error", .remote = true, .peer = 1}};
  ranks.picture.evidence.push_back(errors);
  EXPECT_EQ(evidence_findings(ranks.picture).at(0).ranks, RankSet{1});
  ranks.picture.evidence[0].errors[0].peer = -1;
  EXPECT_THAT(evidence_findings(ranks.picture).at(0).message, HasSubstr("Another rank failed or left first"));
}

TEST(HangEvidence, FilesAreJoinedToLogs) {
  const auto folder = std::filesystem::temp_directory_path() / ("lockstep-evidence-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::vector<std::string> paths;
  std::vector<std::unique_ptr<dist::CollectiveLog>> logs;
  for (int rank = 0; rank < 2; ++rank) {
    paths.push_back((folder / ("rank-" + std::to_string(rank))).string());
    logs.push_back(std::make_unique<dist::CollectiveLog>(paths.back(), rank, 2));
    const uint32_t group = logs.back()->add_group("default", {0, 1}, rank, 0);
    if (rank == 0) {
      logs[0]->begin(group, 1, {.op = dist::CollectiveOp::barrier});
      logs[0]->mapping().group(group).last_entered = 1;
    }
  }
  const std::string errors = (folder / "errors.jsonl").string();
  std::ofstream(errors) << R"({"rank":1,"group":"default","time_ns":5,"source":"nccl","error":2})" << "\n";
  const auto findings = hang(paths, 0, {errors});
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].kind, FindingKind::communicator);
  EXPECT_EQ(findings[0].ranks, RankSet{1});
  EXPECT_THROW(hang(paths, 0, {paths[0]}), UnreadableEvidence) << "a log is no evidence";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::inspect
