// The same ranks, once as the picture of a session and once as what a job left: who is at fault is the same.
#include <gtest/gtest.h>

#include "inspectors/remains/judge.h"
#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

/// The logs of the ranks as a job leaves them.
Remains left_by(const HangPicture& picture) {
  Remains remains;
  for (const RankPicture& rank : picture.ranks) {
    Evidence log{.source = EvidenceSource::collective_log, .origin = "log", .rank = rank.rank};
    for (const dist::LoggedGroup& group : rank.groups)
      if (group.member)
        log.groups.push_back({.name = group.name, .description = {}, .ranks = group.ranks, .members = {}});
    for (const dist::CollectiveRecord& record : rank.recent) {
      EvidenceCall call{.group = record.group, .seq = record.seq, .op = record.op};
      if (record.root >= 0) call.variant = "root " + std::to_string(record.root);
      call.variant += record.reduce_op;
      call.state = record.done_ns > 0 ? EvidenceState::completed : EvidenceState::started;
      if (!record.dtype.empty()) call.input_shapes = {record.shape}, call.input_dtypes = {record.dtype};
      log.calls.push_back(std::move(call));
    }
    remains.evidence.push_back(std::move(log));
    if (rank.has_finished())
      remains.doing.push_back(
          {.rank = rank.rank, .kind = FindingKind::finished, .words = "has finished", .ended = true});
    ++remains.files;
  }
  return remains;
}

void expect_agreement(const MadeUp& ranks) {
  const Finding seen = proven_hang(ranks), left = judge(left_by(ranks.picture)).back();
  EXPECT_EQ(left.severity, seen.severity);
  EXPECT_EQ(left.verdict, seen.verdict) << left << "\n" << seen;
  EXPECT_EQ(left.kind, seen.kind) << left << "\n" << seen;
  EXPECT_EQ(left.ranks, seen.ranks) << left << "\n" << seen;
  EXPECT_EQ(left.reference_ranks, seen.reference_ranks) << left << "\n" << seen;
}

TEST(JudgesAgree, OnARankThatHasFinished) {
  MadeUp ranks(3);
  for (const int rank : {0, 2}) ranks.enters(rank, "all_reduce");
  ranks.finishes(1);
  expect_agreement(ranks);
}

TEST(JudgesAgree, OnRanksThatHaveFinishedTogether) {
  MadeUp ranks(4);
  for (const int rank : {0, 3}) ranks.enters(rank, "all_reduce");
  for (const int rank : {1, 2}) ranks.finishes(rank);
  expect_agreement(ranks);
}

TEST(JudgesAgree, OnOperationsAndRootsThatDiffer) {
  for (const int size : {2, 3, 4}) {
    MadeUp operations(size), roots(size);
    for (int rank = 0; rank < size; ++rank) {
      operations.enters(rank, rank == 1 ? "barrier" : "all_reduce");
      roots.enters(rank, "broadcast", {.root = rank == 1 ? 1 : 0});
    }
    expect_agreement(operations);
    expect_agreement(roots);
  }
}

TEST(JudgesAgree, OnCallsThatDiffer) {
  for (const MadeUp::Options& other :
       {MadeUp::Options{.shape = {3}}, MadeUp::Options{.dtype = "int64"}, MadeUp::Options{.reduce_op = "MAX"}})
    for (const int size : {2, 3}) {
      MadeUp ranks(size);
      for (int rank = 0; rank < size; ++rank) ranks.enters(rank, "all_reduce", rank == 1 ? other : MadeUp::Options());
      expect_agreement(ranks);
    }
}

TEST(JudgesAgree, ThatTwoOfFourAreNoMajority) {
  MadeUp ranks(4);
  for (int rank = 0; rank < 4; ++rank) ranks.enters(rank, "all_reduce", {.shape = {std::max(rank, 1)}});
  expect_agreement(ranks);
}

TEST(JudgesAgree, OnACircleAndWhatLeadsToIt) {
  MadeUp ranks(4);
  ranks.add_group("group_1", {1, 2});
  ranks.add_group("group_2", {1, 2, 3});
  ranks.add_group("group_3", {0, 1});
  ranks.enters(0, "barrier", "group_3");
  ranks.enters(1, "barrier", "group_1");
  for (const int rank : {2, 3}) ranks.enters(rank, "barrier", "group_2");
  expect_agreement(ranks);
}

}  // namespace
}  // namespace lockstep::inspect
