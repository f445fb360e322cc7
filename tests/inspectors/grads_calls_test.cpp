// Calls of grads that differ between ranks, in what they look at or in whether a rank calls.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "inspectors/grads/grads.h"
#include "tests/inspectors/gradients.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;
using namespace gradients;

TEST(Grads, DifferentModulesEndInAFinding) {
  spawn_ranks(3, [](int rank, int) {
    torch::OrderedDict<std::string, torch::Tensor> parameters;
    parameters.insert("a", torch::ones({2}).requires_grad_());
    parameters.insert("b", torch::ones({rank == 1 ? 3 : 2}).requires_grad_());
    parameters.insert("c", torch::ones({2}).requires_grad_(rank != 2));
    for (auto& each : parameters) each.value().mutable_grad() = torch::ones_like(each.value());
    const Report report = grads(parameters, grads_options());
    ASSERT_EQ(report.findings.size(), 2U) << report;
    EXPECT_EQ(report.findings[0].verdict, Verdict::shape_mismatch);
    EXPECT_EQ(report.findings[0].ranks, RankSet{1});
    EXPECT_EQ(report.findings[1].ranks, RankSet{2});
    EXPECT_THAT(report.findings[1].message, HasSubstr("requires_grad"));
    const Report calls =
        rank == 0 ? grads(parameters, grads_options()) : grads(parameters, grads_options().local(true));
    ASSERT_EQ(calls.findings.size(), 1U);
    EXPECT_EQ(calls.findings[0].verdict, Verdict::order_mismatch);
    EXPECT_THAT(calls.findings[0].message, HasSubstr("ranks called grads for different things"));
  });
}

TEST(Grads, ARankThatDoesNotCallIsNamed) {
  spawn_ranks(3, [](int rank, int) {
    SpareNet net;
    if (rank != 1)
      expect_one(grads(net, grads_options().deadline(std::chrono::seconds(2))), Verdict::missing, RankSet{1},
                 "rank 1 did not call grads");
    dist::barrier();
    expect_one(grads(net, grads_options()), Verdict::missing, RankSet::all(3), "no gradient", Severity::note);
  });
}

}  // namespace
}  // namespace lockstep::inspect
