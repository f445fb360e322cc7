// Waits of inspectors end when they have to: at once, and not with their deadlines, which are far longer here than a
// test may take.
#include "inspectors/exchange/side_channel.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <thread>

#include "collectives/log/death_watch.h"
#include "collectives/session_group.h"
#include "inspectors/verify/verify.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

constexpr std::chrono::minutes kFarDeadline(10);

VerifyOptions far_deadline() { return VerifyOptions().name("t").deadline(kFarDeadline); }

void expect_gone(const Report& report, const RankSet& ranks) {
  ASSERT_EQ(report.findings.size(), 1U) << report;
  EXPECT_EQ(report.findings[0].verdict, Verdict::missing);
  EXPECT_EQ(report.findings[0].ranks, ranks);
  EXPECT_THAT(report.findings[0].message, HasSubstr("can't any more"));
}

TEST(SideChannel, ARankThatDiesIsNotWaitedFor) {
  const auto outcomes = testing::run_as_processes(3, [](int rank, int) {
    const torch::Tensor tensor = torch::ones({100});
    EXPECT_TRUE(verify(tensor, far_deadline()).ok());
    if (rank == 1) raise(SIGKILL);
    expect_gone(verify(tensor, far_deadline()), RankSet{1});
    EXPECT_TRUE(verify(tensor, far_deadline().ranks(RankSet{0, 2})).ok());
  });
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0];
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  EXPECT_TRUE(outcomes[2].ok()) << outcomes[2];
}

TEST(SideChannel, ARankThatDiesInTheMiddleIsNamed) {
  const auto outcomes = testing::run_as_processes(2, [](int rank, int) {
    auto context = dist::current_context();
    const auto channel = SideChannel::of(*context);
    const RankSet both = RankSet::all(2);
    channel->gather(both, {1}, kFarDeadline);
    channel->broadcast(both, torch::ones({3}), 0, kFarDeadline);
    if (rank == 1) raise(SIGKILL);
    EXPECT_THROW(channel->broadcast(both, torch::ones({1000000}), 1, kFarDeadline), dist::PeerLeft);
    EXPECT_THROW(channel->gather(both, {1}, kFarDeadline), dist::PeerLeft);
  });
  EXPECT_TRUE(outcomes[0].ok()) << outcomes[0];
}

TEST(SideChannel, AbortEndsAWaitInTheStoreAndRegroupMakesItGood) {
  const auto body = [](int rank, int) {
    const auto context = dist::current_context();
    const torch::Tensor tensor = torch::ones({100});
    EXPECT_TRUE(verify(tensor, far_deadline()).ok());
    if (rank == 0) {
      // From another thread, once this one has come to the exchange.
      std::thread user([context] {
        context->store()->clone()->wait({"inspect/0/0-1/1/0"}, std::chrono::milliseconds(kFarDeadline));
        context->abort("the user's word");
      });
      try {
        verify(tensor, far_deadline());
        ADD_FAILURE() << "not aborted";
      } catch (const dist::Aborted& aborted) {
        EXPECT_EQ(aborted.reason, "the user's word");
      }
      user.join();
    }
    dist::regroup(1, RankSet::all(2));
    EXPECT_TRUE(verify(tensor, far_deadline()).ok());
    EXPECT_FALSE(verify(tensor * rank, far_deadline()).ok());
  };
  spawn_ranks(2, body);
  testing::spawn_processes(2, body);
}

TEST(SideChannel, AbortEndsATransferAndFreesTheOthers) {
  testing::spawn_processes(2, [](int rank, int) {
    const auto context = dist::current_context();
    const auto channel = SideChannel::of(*context);
    const RankSet both = RankSet::all(2);
    channel->broadcast(both, torch::ones({3}), 0, kFarDeadline);
    if (rank == 0) {
      // The other rank has said that its group is there; this one's data never comes.
      std::thread user([context] {
        context->store()->clone()->wait({"inspect/0/0-1/2/0"}, std::chrono::milliseconds(kFarDeadline));
        context->abort("enough");
      });
      EXPECT_THROW(channel->broadcast(both, torch::ones({3}), 1, kFarDeadline), dist::Aborted);
      user.join();
    } else {
      const ExchangeResult result =
          channel->try_gather(both, {1}, kFarDeadline);  // in the place of the broadcast: says "ready", and no more
      EXPECT_TRUE(result.missing.empty() || result.missing == RankSet{0});
    }
    dist::regroup(1, both);
    EXPECT_TRUE(verify(torch::ones({3}), far_deadline()).ok());
  });
}

TEST(SideChannel, ARankThatHasLeftTheCellIsNotWaitedFor) {
  spawn_ranks(3, [](int rank, int) {
    const auto context = dist::current_context();
    dist::set_thread_context(7);
    if (rank == 2) return;
    context->rank_left(6, 1 - rank);  // of another cell
    std::thread session([context] { context->rank_left(7, 2); });
    expect_gone(verify(torch::ones({3}), far_deadline()), RankSet{2});
    session.join();
    EXPECT_TRUE(verify(torch::ones({3}), far_deadline().ranks(RankSet{0, 1})).ok());
  });
}

TEST(DeathWatch, TellsOfProcessesThatEndAndEndsItself) {
  EXPECT_NO_THROW(dist::DeathWatch({}, [](int) { ADD_FAILURE(); }));
  dist::Peer self{.rank = 3, .same_machine = true, .pid = getpid()};
  EXPECT_NO_THROW(dist::DeathWatch({self}, [](int) { ADD_FAILURE(); }));
}

}  // namespace
}  // namespace lockstep::inspect
