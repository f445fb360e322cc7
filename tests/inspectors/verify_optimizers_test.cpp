// verify on optimizers: their state, their options, and state of a type that it does not know.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <memory>

#include "inspectors/subject/saved_state.h"
#include "inspectors/verify/verify.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Verify, OptimizersStateStepsAndHyperParameters) {
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(0.1));
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    adam.step();
    const Report equal = verify(adam, VerifyOptions().name("adam"));
    EXPECT_TRUE(equal.ok()) << equal;
    EXPECT_GT(equal.tensors, 18);
    if (rank == 1) {
      static_cast<torch::optim::AdamOptions&>(adam.param_groups()[0].options()).lr(0.2);
      adam.step();
    }
    const Report report = verify(adam, VerifyOptions().name("adam"));
    ASSERT_EQ(report.findings.size(), 2U) << report;
    EXPECT_EQ(report.findings[0].kind, FindingKind::hyperparameter);
    EXPECT_THAT(names(report.findings[0]), ElementsAre("lr"));
    EXPECT_EQ(report.findings[1].kind, FindingKind::state);
    EXPECT_THAT(names(report.findings[1]), ::testing::Contains("0.step"));
    EXPECT_THAT(names(report.findings[1]), ::testing::Contains("5.exp_avg"));
  });
}

TEST(Verify, EveryOptionOfLbfgsIsCompared) {
  spawn_ranks(2, [](int rank, int) {
    const torch::Tensor parameter = torch::ones({2}).requires_grad_();
    const auto compared = [&](const torch::optim::LBFGSOptions& options) {
      return names(only_finding(verify(torch::optim::LBFGS({parameter}, options), verify_options())));
    };
    torch::optim::LBFGSOptions options(0.1);
    EXPECT_THAT(compared(options), ElementsAre());
    if (rank == 1) options.line_search_fn("strong_wolfe");
    EXPECT_THAT(compared(options), ElementsAre("line_search_fn"));
    options = torch::optim::LBFGSOptions(0.1).max_eval(25 + rank);
    EXPECT_THAT(compared(options), ElementsAre("max_eval"));
  });
}

struct StateOfItsOwn : torch::optim::OptimizerCloneableParamState<StateOfItsOwn> {};

TEST(Verify, StateOfAnotherTypeIsNamedAsNotCompared) {
  spawn_ranks(2, [](int, int) {
    const torch::Tensor parameter = torch::ones({2}).requires_grad_();
    torch::optim::SGD sgd({parameter}, 0.1);
    sgd.state()[parameter.unsafeGetTensorImpl()] = std::make_unique<StateOfItsOwn>();
    const Report report = verify(sgd, verify_options());
    const Finding finding = only_finding(report);  // and no ok, which would be said of all
    EXPECT_EQ(finding.verdict, Verdict::unsupported);
    EXPECT_EQ(finding.severity, Severity::note);
    EXPECT_THAT(finding.message, HasSubstr("0.state; the rest is equal on ranks 0-1: 6 values"));
  });
}

struct OptionsWithoutARate : torch::optim::OptimizerCloneableOptions<OptionsWithoutARate> {};

struct OptimizerOfItsOwn : torch::optim::Optimizer {
  explicit OptimizerOfItsOwn(const torch::Tensor& parameter)
      : Optimizer({torch::optim::OptimizerParamGroup({parameter})}, std::make_unique<OptionsWithoutARate>()) {}
  torch::Tensor step(LossClosure) override { return {}; }
};

TEST(Verify, AnOptimizerWithoutALearningRateIsComparedByItsParameters) {
  spawn_ranks(2, [](int, int) {
    OptimizerOfItsOwn optimizer(torch::ones({2}).requires_grad_());
    const Finding finding = only_finding(verify(optimizer, verify_options()));
    EXPECT_EQ(finding.verdict, Verdict::unsupported);
    EXPECT_THAT(finding.message, HasSubstr("options; the rest is equal on ranks 0-1: 1 value"));
    SavedState saved;
    saved.save(optimizer);
    saved.restore();
    EXPECT_TRUE(optimizer.param_groups()[0].has_options());
  });
}

}  // namespace
}  // namespace lockstep::inspect
