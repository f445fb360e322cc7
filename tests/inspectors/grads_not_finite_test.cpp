// NaN and Inf in gradients: from which rank they come, and whether before the reduction or from it.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <optional>

#include "inspectors/grads/grads.h"
#include "inspectors/grads/watch.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/gradients.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using testing::spawn_ranks;
using namespace gradients;

TEST(Grads, NotANumberIsTracedToTheRankThatBroughtItIn) {
  spawn_ranks(3, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
    std::optional<GradWatch> watching(watch_grads(net));
    const auto pass = [&] {
      net.zero_grad();
      torch::Tensor loss = loss_of(net(batch(rank)));
      if (rank == 2) loss = loss * std::numeric_limits<double>::quiet_NaN();
      loss.backward();
    };
    pass();
    expect_one(grads(net, grads_options()), Verdict::nan, RankSet{2}, "after backward on rank 2");
    expect_one(grads(net, grads_options().local(true)), Verdict::nan, RankSet{2}, "after backward on rank 2");
    watching.reset();
    pass();
    expect_one(grads(net, grads_options()), Verdict::nan, RankSet::all(3), "NaN in all 6 gradients on ranks 0-2");
  });
}

TEST(Grads, AnOverflowOfTheReductionIsToldFromOneOfARank) {
  spawn_ranks(2, [](int, int) {
    const torch::Tensor parameter = torch::zeros({4}).requires_grad_(true);
    const auto watching = watch_grads(parameter);
    (parameter * 3e38).sum().backward();
    dist::all_reduce(parameter.grad());
    expect_one(grads(parameter, grads_options()), Verdict::inf, RankSet::all(2),
               "although the gradients of every rank were finite after backward");
  });
}

TEST(Grads, WhatTheProgramHasMadeOfAGradientIsLookedAtUntilACollectiveBegins) {
  spawn_ranks(3, [](int rank, int) {
    const torch::Tensor parameter = torch::zeros({4}).requires_grad_(true);
    const auto watching = watch_grads(parameter);
    const auto pass = [&] {
      parameter.mutable_grad() = torch::Tensor();
      (parameter * (1024.0 + rank)).sum().backward();
    };
    pass();
    if (rank != 2) parameter.mutable_grad().div_(1024);  // the loss scale
    expect_one(grads(parameter, grads_options().local(true)), Verdict::outlier, RankSet{2}, "norm", Severity::note);
    pass();
    if (rank == 1) parameter.mutable_grad().fill_(INFINITY);
    expect_one(grads(parameter, grads_options().local(true)), Verdict::inf, RankSet{1},
               "after backward on rank 1, before the reduction");
    // No outlier besides, though the norm of what is finite is another one.
    const std::vector<torch::Tensor> both = {parameter, torch::ones({4}).requires_grad_(true)};
    const auto watching_both = watch_grads(both);
    pass();
    (both[1] * 1024).sum().backward();
    if (rank == 1) parameter.mutable_grad().fill_(INFINITY);
    expect_one(grads(both, grads_options().local(true)), Verdict::inf, RankSet{1},
               "Inf in 1 of 2 gradients after backward");
    // A reduction has begun: what backward left is what there was before it.
    pass();
    dist::all_reduce(parameter.mutable_grad());
    expect_one(grads(parameter, grads_options().local(true)), Verdict::ok, RankSet::all(3),
               "finite and of similar size", Severity::note);
  });
}

}  // namespace
}  // namespace lockstep::inspect
