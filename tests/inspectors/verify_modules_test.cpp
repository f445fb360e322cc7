// verify on modules: train() and eval(), and buffers that forward writes or a wrapper leaves alone.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "inspectors/verify/verify.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;
using ::testing::StartsWith;

TEST(Verify, AModuleInEvalOnOneRankIsAFault) {
  spawn_ranks(3, [](int rank, int) {
    const auto net = equal_net();
    EXPECT_EQ(verify(net, verify_options()).tensors, 9);
    if (rank == 1) net->eval();
    const Finding whole = only_finding(verify(net, verify_options()));
    EXPECT_EQ(whole.severity, Severity::fault);
    EXPECT_EQ(whole.verdict, Verdict::mismatch);
    EXPECT_EQ(whole.kind, FindingKind::mode);
    EXPECT_EQ(whole.ranks, RankSet{1});
    EXPECT_THAT(
        whole.message,
        HasSubstr("rank 1 differs from ranks 0,2 in train() and eval(): train() on ranks 0,2, eval() on rank 1"));
    // A part of it, and the same on all ranks.
    net->train();
    if (rank == 1) net->norm->eval();
    const ddp::DistributedDataParallel wrapped(net, ddp::Options());
    EXPECT_THAT(only_finding(verify(wrapped, verify_options())).message, HasSubstr("train(), norm eval() on rank 1"));
    net->norm->eval();
    EXPECT_EQ(only_finding(verify(net, verify_options())).verdict, Verdict::ok);
  });
}

TEST(Verify, BuffersOfAWrapperWithoutBroadcastBuffersAreANote) {
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    ddp::DistributedDataParallel quiet(net, ddp::Options().broadcast_buffers(false));
    change(net->norm->running_mean, [&](torch::Tensor& mean) { mean.fill_(rank); });
    const Finding local = only_finding(verify(quiet, verify_options()));
    EXPECT_EQ(local.verdict, Verdict::ok);
    EXPECT_EQ(local.severity, Severity::note);
    EXPECT_THAT(names(local), ElementsAre("norm.running_mean"));
    EXPECT_TRUE(verify(net, verify_options()).ok());  // the wrapper lives around it
    const auto bare = equal_net();
    change(bare->norm->running_mean, [&](torch::Tensor& mean) { mean.fill_(rank); });
    EXPECT_FALSE(verify(bare, verify_options()).ok());
  });
}

TEST(Verify, BuffersThatForwardWritesAreANoteAndOthersAFault) {
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    ddp::DistributedDataParallel wrapped(net, ddp::Options());
    change(net->norm->running_mean, [&](torch::Tensor& mean) { mean.fill_(rank); });
    EXPECT_FALSE(verify(wrapped, verify_options()).ok());  // no forward has run: somebody else has written them
    for (int step = 0; step < 2; ++step) {
      wrapped(torch::arange(32.0).reshape({4, 8}) * (rank + 1) * 0.01).pow(2).mean().backward();
      for (const Report& report : {verify(wrapped, verify_options()), verify(net, verify_options())}) {
        const Finding finding = only_finding(report);
        EXPECT_EQ(finding.verdict, Verdict::ok);
        EXPECT_THAT(names(finding), ElementsAre("norm.running_mean", "norm.running_var"));
        EXPECT_THAT(finding.message, StartsWith("forward has written buffers since the wrapper made them equal"));
      }
    }
    wrapped.sync_module_states();
    EXPECT_THAT(verify(wrapped, verify_options()).findings[0].message, HasSubstr("equal on ranks 0-1"));
  });
}

}  // namespace
}  // namespace lockstep::inspect
