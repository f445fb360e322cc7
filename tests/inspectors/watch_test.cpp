// watch on ranks that are threads: how steps are counted, and between which of them replicas part.
#include "inspectors/verify/watch.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <future>
#include <optional>

#include "lockstep/ddp.h"
#include "tests/inspectors/replicas.h"
#include "tests/inspectors/reports.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;

TEST(Watch, NamesTheStepsBetweenWhichReplicasPartedAndTellsItOnce) {
  const PublishedFindings published;
  spawn_ranks(3, [](int rank, int) {
    const auto net = equal_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const auto watching = watch(*net, 3, verify_options());
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    for (int i = 1; i <= 10; ++i) {
      if (i == 5 && rank == 2) change(net->first->bias, [](torch::Tensor& bias) { bias[1] += 1; });
      inspect::step(sgd);
    }
    EXPECT_EQ(counted_steps(), 10);
    EXPECT_EQ(watching.cost().checks, 3);
    EXPECT_GT(watching.cost().seconds, 0);
  });
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].ranks, RankSet{2});
  EXPECT_EQ(published.all()[0].step, 6);
  EXPECT_THAT(published.all()[0].message, HasSubstr("equal at step 3, not at step 6"));
}

TEST(Watch, ClaimsNothingOfStepsBeforeTheFirstComparison) {
  const PublishedFindings published;
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    if (rank == 1) change(net->first->bias, [](torch::Tensor& bias) { bias[1] += 1; });
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const auto watching = watch(*net, 2, verify_options());
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    for (int i = 1; i <= 2; ++i) inspect::step(sgd);
  });
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_THAT(published.all()[0].message, HasSubstr("; not equal at step 2, the first that was compared"));
}

TEST(Watch, ARankThatSkipsAStepCostsTwoDeadlinesAndNoMore) {
  const PublishedFindings published;
  spawn_ranks(2, [](int rank, int) {
    const auto net = equal_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const auto options = verify_options().deadline(std::chrono::milliseconds(50));
    const auto watching = watch(*net, 2, options), second = watch(sgd, 2, options);
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    for (int i = 0; i < 12; ++i) {
      dist::all_reduce(torch::ones({1}));  // in step, as training is
      if (rank == 0 || i != 0) inspect::step(sgd);
    }
    EXPECT_EQ(watching.cost().checks, 2);
    EXPECT_EQ(second.cost().checks, 0);  // in the same steps, where one of them has waited
  });
  ASSERT_EQ(published.all().size(), 2U);
  for (const Finding& each : published.all()) {
    EXPECT_EQ(each.ranks, RankSet{1});
    EXPECT_THAT(each.message, HasSubstr("does every rank run each step?"));
  }
  EXPECT_THAT(published.all()[0].message, HasSubstr("this is the watch, at step 2"));
  EXPECT_THAT(published.all()[1].message, HasSubstr("Nothing is compared from here on"));
}

TEST(Watch, GoesOnAfterACheckToWhichARankCameLate) {
  const PublishedFindings published;
  std::promise<void> checked;
  std::shared_future<void> is_checked = checked.get_future().share();
  spawn_ranks(2, [&](int rank, int) {
    const auto net = equal_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    // Long enough for the other checks on a busy machine.
    const auto watching = watch(*net, 2, verify_options().deadline(std::chrono::seconds(rank == 0 ? 2 : 300)));
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    for (int i = 1; i <= 6; ++i) {
      dist::all_reduce(torch::ones({1}));
      if (rank == 1 && i == 2) is_checked.wait();
      if (rank == 1 && i == 5) change(net->first->bias, [](torch::Tensor& bias) { bias[1] += 1; });
      inspect::step(sgd);
      if (rank == 0 && i == 2) checked.set_value();
    }
    EXPECT_EQ(watching.cost().checks, 3);
  });
  ASSERT_EQ(published.all().size(), 2U);
  EXPECT_THAT(published.all()[0].message, HasSubstr("this is the watch, at step 2: does every rank run each step?"));
  EXPECT_THAT(published.all()[1].message, HasSubstr("equal at step 4, not at step 6"));
}

TEST(Watch, AParameterThatNoStepHasChangedIsANote) {
  const PublishedFindings published;
  spawn_ranks(2, [](int, int) {
    const auto net = equal_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    const auto watching = watch(*net, 5, verify_options());
    for (auto& parameter : net->parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    net->norm->bias.mutable_grad().reset();
    for (int i = 1; i <= 20; ++i) inspect::step(sgd);
  });
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].severity, Severity::note);
  EXPECT_EQ(published.all()[0].verdict, Verdict::stale);
  EXPECT_THAT(names(published.all()[0]), ::testing::ElementsAre("norm.bias"));
  EXPECT_THAT(published.all()[0].message, HasSubstr("10 steps have not changed 1 of 6 parameters on rank 0"));
}

TEST(Watch, CountsAWrappersStepsAlsoForRanksThatAreOutOfData) {
  const PublishedFindings published;
  spawn_ranks(3, [](int rank, int) {
    const auto net = equal_net();
    ddp::DistributedDataParallel wrapped(net, ddp::Options());
    torch::optim::SGD sgd(net->parameters(), 1e-6);
    const auto watching = watch(*net, 2, verify_options());  // the bare module: its wrapper counts
    wrapped.join([&] {
      for (int step = 1; step <= (rank == 1 ? 3 : 7); ++step) {
        sgd.zero_grad();
        {
          const auto scope = wrapped.no_sync();  // no step
          wrapped(torch::arange(32.0).reshape({4, 8}) * 0.01 * (rank + step)).pow(2).mean().backward();
        }
        wrapped(torch::arange(32.0).reshape({4, 8}) * 0.01 * (rank + step)).pow(2).mean().backward();
        inspect::step(sgd);  // nor is this one more
        if (rank == 2 && step == 4) change(net->first->bias, [](torch::Tensor& bias) { bias[1] += 1; });
      }
    });
    EXPECT_EQ(watching.cost().checks, 3);
    EXPECT_EQ(watching.cost().steps, 7);
  });
  ASSERT_EQ(published.all().size(), 2U);
  EXPECT_EQ(published.all()[0].verdict, Verdict::mismatch);
  EXPECT_EQ(published.all()[0].ranks, (RankSet{0, 2}));  // rank 1 has no more data: its parameters are those of step 3
  EXPECT_EQ(published.all()[0].step, 6);
  EXPECT_EQ(published.all()[1].verdict, Verdict::uneven_data);
}

TEST(Watch, CountsChangedParametersWhereNobodyCountsSteps) {
  const PublishedFindings published;
  spawn_ranks(3, [](int rank, int) {
    const auto net = equal_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);  // which leaves the tensors' versions alone
    const auto watching = watch(sgd, 2, verify_options());
    const auto parameters = watch(net, 2, verify_options());
    for (int i = 1; i <= 9; ++i) {
      for (auto& parameter : net->parameters()) {
        parameter.mutable_grad() = torch::ones_like(parameter);
        dist::all_reduce(parameter.grad());
      }
      sgd.step();
      if (i == 5 && rank == 0) change(net->first->bias, [](torch::Tensor& bias) { bias[1] += 1; });
    }
    EXPECT_EQ(parameters.cost().steps, 8);  // the ninth's end is seen where the next collective begins
    EXPECT_EQ(parameters.cost().checks, 4);
    EXPECT_EQ(watching.cost().steps, 8);
  });
  ASSERT_EQ(published.all().size(), 1U);
  EXPECT_EQ(published.all()[0].ranks, RankSet{0});
  EXPECT_THAT(published.all()[0].message, HasSubstr("equal at step 4, not at step 6"));
}

TEST(Watch, EndsWithItsHandleAndRefusesNonsense) {
  const torch::Tensor tensor = torch::ones({2});
  EXPECT_THROW((void)watch(tensor, 0), dist::ArgumentError);
  std::optional<Watch> watching(watch(tensor, 1));
  count_step();
  EXPECT_EQ(watching->cost().checks, 1);
  watching.reset();
  count_step();
}

}  // namespace
}  // namespace lockstep::inspect
