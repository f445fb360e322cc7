// grads on ranks that are threads: healthy training is left in peace.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>

#include "inspectors/grads/grads.h"
#include "inspectors/grads/watch.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/gradients.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using ::testing::HasSubstr;
using testing::spawn_ranks;
using namespace gradients;

TEST(Grads, ReducedGradientsOfAWrapperAreTheMeanAndFine) {
  for (const bool view : {false, true}) {
    spawn_ranks(3, [view](int rank, int) {
      ddp::DistributedDataParallel net(std::make_shared<SpareNet>(), ddp::Options().gradient_as_bucket_view(view));
      const auto watching = watch_grads(net);
      torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        loss_of(net(batch(rank, step))).backward();
        const Report report = grads(net, grads_options());
        expect_fine(report);
        EXPECT_THAT(report.findings[0].message, HasSubstr("the mean over ranks")) << view;
        EXPECT_EQ(report.tensors, 6);
        EXPECT_EQ(report.findings[0].step, step + 1);
        expect_fine(grads(net, grads_options().local(true)));
        optimizer.step();
      }
      EXPECT_GE(watching.cost().gradients, 18);
    });
  }
}

TEST(Grads, WithoutAnObserverItSaysWhatItCantTell) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
    loss_of(net(batch(rank))).backward();
    const Report report = grads(net, grads_options());
    expect_fine(report);
    EXPECT_THAT(report.findings[0].message, HasSubstr("inspect::watch_grads"));
    const Report local = grads(net, grads_options().local(true));
    expect_fine(local);
    EXPECT_THAT(local.findings[0].message, HasSubstr("already reduced"));
  });
}

TEST(Grads, ClippedGradientsAreFine) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
    const auto watching = watch_grads(net);
    loss_of(net(batch(rank))).backward();
    torch::nn::utils::clip_grad_norm_(net.parameters(), 0.013);
    const Report report = grads(net, grads_options());
    expect_fine(report);
    EXPECT_THAT(report.findings[0].message, HasSubstr("clipped to a norm of 0.013"));
    for (auto& parameter : net.parameters()) parameter.mutable_grad().clamp_(-1e-4, 1e-4);
    const Report by_value = grads(net, grads_options());
    EXPECT_TRUE(by_value.ok());
    EXPECT_EQ(by_value.findings[0].severity, Severity::note);
    EXPECT_EQ(by_value.findings[0].verdict, Verdict::mismatch) << "what is no mean was not checked, which is no ok";
    EXPECT_THAT(by_value.findings[0].message, HasSubstr("and 3 more are no multiples of the mean over ranks"));
  });
}

TEST(Grads, FrozenLayersAreNotLookedAt) {
  spawn_ranks(2, [](int rank, int) {
    const auto module = std::make_shared<SpareNet>();
    module->first->weight.mutable_grad() = torch::full({10, 6}, rank);  // from before it was frozen
    for (auto& parameter : module->first->parameters()) parameter.requires_grad_(false);
    ddp::DistributedDataParallel net(module);
    const auto watching = watch_grads(net);
    loss_of(net(batch(rank))).backward();
    const Report report = grads(net, grads_options());
    expect_fine(report);
    EXPECT_EQ(report.tensors, 4);
  });
}

TEST(Grads, UnusedParametersWithFindUnusedParametersAreFine) {
  spawn_ranks(3, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>(), ddp::Options().find_unused_parameters(true));
    const auto watching = watch_grads(net);
    for (const bool spare_on_rank0 : {true, false}) {
      net.zero_grad();
      loss_of(net(batch(rank), rank == 0 && spare_on_rank0)).backward();
      expect_fine(grads(net, grads_options()));
      expect_fine(grads(net, grads_options().local(true)));
    }
  });
}

TEST(Grads, AccumulationUnderNoSyncIsFineAtEachOfItsSteps) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
    const auto watching = watch_grads(net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
        std::optional<ddp::NoSync> scope;
        if (micro_batch < 2) scope.emplace(net);
        loss_of(net(batch(rank, 3 * step + micro_batch))).backward();
        expect_fine(grads(net, grads_options().local(true)));
        const Report report = grads(net, grads_options());
        EXPECT_TRUE(report.ok()) << report;  // a note, at most, as long as they are not reduced
        if (micro_batch == 2) {
          expect_fine(report);
          EXPECT_THAT(report.findings[0].message, HasSubstr("the mean over ranks"));
        } else {
          EXPECT_THAT(report.findings[0].message, HasSubstr("no_sync"));
        }
      }
      optimizer.step();
    }
  });
}

TEST(Grads, AnUnevenLastBatchUnderJoinIsFine) {
  for (const bool initial : {true, false}) {
    spawn_ranks(3, [initial](int rank, int) {
      ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
      const auto watching = watch_grads(net);
      torch::optim::SGD optimizer(net.parameters(), 0.1);
      net.join(
          [&] {
            for (int step = 0; step < (rank == 1 ? 2 : 4); ++step) {
              optimizer.zero_grad();
              loss_of(net(batch(rank, step))).backward();
              optimizer.step();
            }
          },
          ddp::JoinOptions().divide_by_initial_world_size(initial));
      const Report report = grads(net, grads_options());
      EXPECT_TRUE(report.ok()) << report;
      const Finding& note = report.findings.back();
      EXPECT_EQ(note.verdict, Verdict::uneven_data);
      EXPECT_EQ(note.ranks, RankSet{1});
      if (rank != 1) EXPECT_EQ(report.findings[0].verdict, Verdict::ok) << report;
    });
  }
}

struct Tied : torch::nn::Module {
  Tied() {
    first = register_parameter("first", torch::arange(36.0).reshape({6, 6}).sin());
    last = register_parameter("last", first);
  }
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(first).tanh().matmul(last.t()); }
  torch::Tensor first, last;
};

TEST(Grads, ModulesWithSharedWeightsAreFine) {
  spawn_ranks(2, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<Tied>());
    const auto watching = watch_grads(net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss_of(net(batch(rank, step))).backward();
      const Report report = grads(net, grads_options());
      expect_fine(report);
      EXPECT_EQ(report.tensors, 1);
      optimizer.step();
    }
  });
}

TEST(Grads, DropoutWithSeedsOfRanksIsFine) {
  spawn_ranks(3, [](int rank, int) {
    ddp::DistributedDataParallel net(std::make_shared<SpareNet>());
    const auto watching = watch_grads(net);
    loss_of(torch::dropout(net(batch(rank)), 0.5, true)).backward();
    expect_fine(grads(net, grads_options()));
    EXPECT_TRUE(grads(net, grads_options().local(true)).ok());
  });
}

}  // namespace
}  // namespace lockstep::inspect
