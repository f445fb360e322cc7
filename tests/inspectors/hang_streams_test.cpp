// What is said of collectives that devices do: enqueued, waiting for their stream, started.
#include <gmock/gmock.h>

#include "inspectors/hang/state.h"
#include "inspectors/hang/words.h"
#include "tests/inspectors/hang_findings.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Makes the collectives that the rank is in those of a device, and lets its thread wait for that.
void on_device(MadeUp& ranks, int rank, dist::CollectiveStage stage) {
  RankPicture& picture = ranks.at(rank);
  for (RankWait& wait : picture.waits) {
    wait.call.on_device = true;
    wait.call.looked_ns = stage == dist::CollectiveStage::enqueued ? 0 : ranks.picture.now_ns;
    wait.call.reached_ns =
        stage == dist::CollectiveStage::ready || stage == dist::CollectiveStage::started ? ranks.picture.now_ns : 0;
    wait.call.started_ns = stage == dist::CollectiveStage::started ? ranks.picture.now_ns : 0;
  }
  picture.activity = FindingKind::device;
  picture.stack = {{"cudaStreamSynchronize", 0, 0, "libcudart.so.13"}, {"", 7, 9, ""}};
}

TEST(HangOnStreams, NamesTheStreamThatHasNotReachedTheCall) {
  MadeUp ranks(4);
  for (int rank = 0; rank < 4; ++rank) {
    ranks.enters(rank, "all_reduce");
    on_device(ranks, rank, rank == 2 ? dist::CollectiveStage::waiting_for_stream : dist::CollectiveStage::started);
  }
  expect_no_hang(ranks);
  EXPECT_EQ(
      rank_sentence(ranks.picture, ranks.at(2)),
      "enqueued all_reduce #1 (cell 7, line 4) 3.0 s ago; its stream has not reached it (a kernel before it still "
      "runs)");
  EXPECT_EQ(rank_sentence(ranks.picture, ranks.at(0)),
            "waits 3.0 s in all_reduce #1 (cell 7, line 4), started on its device, which all ranks have entered; the "
            "stream of rank 2 has not reached it");
  const auto finding = stalled(ranks.picture, 3);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, FindingKind::stream);
  EXPECT_EQ(finding->ranks, RankSet{2});
  EXPECT_EQ(finding->reference_ranks, (RankSet{0, 1, 3}));
  EXPECT_EQ(finding->where, "cell 7, line 4");
  EXPECT_THAT(finding->message, HasSubstr("rank 2: enqueued all_reduce #1"));
  EXPECT_THAT(finding->message, HasSubstr("ranks 0-1,3: wait 3.0 s in all_reduce #1"));
}

TEST(HangOnStreams, NamesTheRanksOnWhichTheCallHasStarted) {
  MadeUp ranks(4);
  for (const int rank : {0, 1, 3}) {
    ranks.enters(rank, "all_reduce");
    on_device(ranks, rank, dist::CollectiveStage::started);
  }
  ranks.finishes(2);
  const Finding finding = proven_hang(ranks);
  EXPECT_EQ(finding.kind, FindingKind::finished);
  EXPECT_EQ(finding.ranks, RankSet{2});
  EXPECT_THAT(finding.message, HasSubstr("rank 2 has finished without entering it"));
  EXPECT_THAT(finding.message, HasSubstr("; it has started on ranks 0-1,3"));
}

TEST(HangOnStreams, ARankThatHasNotEnqueuedItIsNamedToo) {
  MadeUp ranks(4);
  for (const int rank : {0, 1, 3}) {
    ranks.enters(rank, "all_reduce");
    on_device(ranks, rank, rank == 3 ? dist::CollectiveStage::waiting_for_stream : dist::CollectiveStage::started);
  }
  EXPECT_EQ(rank_sentence(ranks.picture, ranks.at(0)),
            "waits 3.0 s in all_reduce #1 (cell 7, line 4), started on its device, for rank 2");
  EXPECT_THAT(rank_sentence(ranks.picture, ranks.at(3)), HasSubstr("; rank 2 has not entered it"));
  const auto finding = stalled(ranks.picture, 3);
  EXPECT_EQ(finding->ranks, RankSet{2}) << "the call can't end without it, whatever a stream does";
  EXPECT_EQ(finding->kind, FindingKind::computing);
}

TEST(HangOnStreams, AnEarlierCollectiveOfTheRankIsWhatItsStreamWaitsFor) {
  MadeUp ranks(2);
  ranks.add_group("pair", {0, 1});
  ranks.enters(0, "all_gather", "pair");
  on_device(ranks, 0, dist::CollectiveStage::started);
  ranks.enters(0, "all_reduce");
  ranks.at(0).waits.back().call.on_device = true;
  ranks.at(0).waits.back().call.looked_ns = ranks.picture.now_ns;
  ranks.at(0).activity = FindingKind::device;
  ranks.enters(1, "all_reduce");
  on_device(ranks, 1, dist::CollectiveStage::started);
  const Finding finding = proven_hang(ranks);  // rank 1 never comes to the all_gather
  EXPECT_THAT(finding.message, HasSubstr("the stream of rank 0 has not reached it (all_gather #1 of pair (cell 7, line "
                                         "4) before it is not done)"));
}

TEST(HangOnStreams, AStreamHeldByACollectiveThatMayEndIsNotStuck) {
  MadeUp ranks(3);
  ranks.add_group("pair", {0, 2});
  ranks.enters(0, "all_gather", "pair");  // rank 2 computes, and may come to it
  ranks.enters(0, "all_reduce");
  on_device(ranks, 0, dist::CollectiveStage::waiting_for_stream);
  ranks.at(0).waits[0].call.reached_ns = ranks.at(0).waits[0].call.started_ns = ranks.picture.now_ns;
  ranks.enters(1, "all_reduce");
  on_device(ranks, 1, dist::CollectiveStage::started);
  expect_no_hang(ranks);
  EXPECT_THAT(rank_sentence(ranks.picture, ranks.at(1)), HasSubstr("for ranks 0,2"));
}

TEST(HangOnStreams, AStreamHeldByAKernelMayStillComeToTheCall) {
  MadeUp ranks(2);
  for (const int rank : {0, 1}) {
    ranks.enters(rank, "all_reduce");
    on_device(ranks, rank, dist::CollectiveStage::waiting_for_stream);
  }
  expect_no_hang(ranks);
}

TEST(HangOnStreams, ARankThatComputesMayStillEnter) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce");
  on_device(ranks, 0, dist::CollectiveStage::started);
  expect_no_hang(ranks);
  ranks.finishes(1);
  ranks.at(0).activity = FindingKind::computing;  // the call has returned, and the thread has not come to wait for it
  expect_no_hang(ranks);
  EXPECT_TRUE(analyse_hang(ranks.picture).suspicious);
  EXPECT_THAT(rank_sentence(ranks.picture, ranks.at(0)),
              HasSubstr("with all_reduce #1 (cell 7, line 4) started on its device"));
}

TEST(HangOnStreams, WithoutAStackADeviceCallIsNoProofOfWaiting) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce");
  on_device(ranks, 0, dist::CollectiveStage::started);
  ranks.at(0).activity = FindingKind::unknown;
  ranks.finishes(1);
  expect_no_hang(ranks);
}

TEST(HangOnStreams, AStageThatNobodyLookedAtIsNotClaimed) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce");
  on_device(ranks, 0, dist::CollectiveStage::enqueued);
  EXPECT_EQ(rank_sentence(ranks.picture, ranks.at(0)),
            "enqueued all_reduce #1 (cell 7, line 4) 3.0 s ago; whether its stream has reached it is not known; rank 1 "
            "has not entered it");
  EXPECT_EQ(unreached_ranks(ranks.picture, ranks.at(0).waits[0].call), RankSet());
}

TEST(HangOnStreams, CallsOfTheHostHaveNoStages) {
  MadeUp ranks(2);
  ranks.enters(0, "all_reduce");
  ranks.finishes(1);
  EXPECT_THAT(proven_hang(ranks).message, Not(HasSubstr("started")));
  EXPECT_EQ(stages_words(ranks.picture, ranks.at(0).waits[0].call), "");
}

TEST(HangOnStreams, AThreadThatWaitsForItsDeviceIsRecognised) {
  EXPECT_EQ(activity_of({{"cuStreamSynchronize", 0, 0, "libcuda.so.1"}, {"", 7, 4, ""}}, false, false),
            FindingKind::device);
  EXPECT_EQ(activity_of({{"pthread_cond_wait", 0, 0, "libc.so.6"},
                         {"fake::DeviceGuard::synchronizeStream(c10::Stream const&) const", 0, 0, "test"},
                         {"", 7, 4, ""}},
                        false, true),
            FindingKind::device)
      << "how a back end waits does not matter";
  EXPECT_EQ(
      activity_of({{"cudaStreamSynchronize", 0, 0, "libcudart.so.13"},
                   {"c10d::ProcessGroupNCCL::WorkNCCL::wait(std::chrono::milliseconds)", 0, 0, "libtorch_cuda.so"},
                   {"", 7, 4, ""}},
                  false, false),
      FindingKind::collective);
}

}  // namespace
}  // namespace lockstep::inspect
