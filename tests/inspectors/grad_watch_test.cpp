// The observer of gradients: what it keeps of them, when it ends, and that training does not notice it.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/grads/grads.h"
#include "inspectors/grads/watch.h"
#include "lockstep/ddp.h"
#include "tests/inspectors/gradients.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::inspect {
namespace {

using testing::spawn_ranks;
using namespace gradients;

TEST(GradWatch, SketchesAreLinearAndKnowPlaces) {
  for (const int64_t size : {1, 7, 500, 513, 100000}) {
    const torch::Tensor a = torch::arange(size, at::kDouble).mul(0.31).sin(), b = a.cos();
    const Sketch of_a = sketch_of(a), of_b = sketch_of(b), of_sum = sketch_of(3 * a - b);
    for (size_t i = 0; i < of_a.size(); ++i) EXPECT_NEAR(of_sum[i], 3 * of_a[i] - of_b[i], 1e-9);
    if (size > 1) EXPECT_NE(of_a, sketch_of(a.flip(0)));
  }
  EXPECT_EQ(sketch_of(torch::ones({3}, at::kLong)), Sketch{});
  EXPECT_EQ(sketch_of(torch::zeros({0})), Sketch{});
}

TEST(GradWatch, EndsWithItsHandleAndLetsOthersStay) {
  const torch::Tensor parameter = torch::ones({3}).requires_grad_();
  const auto pass = [&] {
    parameter.mutable_grad() = torch::Tensor();
    (parameter * 2).sum().backward();
  };
  std::optional<GradWatch> first(watch_grads(parameter)), second(watch_grads(parameter));
  pass();
  EXPECT_EQ(first->cost().gradients, 1);
  EXPECT_EQ(second->cost().gradients, 1);
  first.reset();
  pass();
  EXPECT_EQ(second->cost().gradients, 2);
  second.reset();
  pass();
  EXPECT_FALSE(gradients_seen(gradients_of(parameter, "")).has_value());
}

// Rule 9: looking does not touch.
TEST(GradWatch, LeavesTrainingBitIdentical) {
  for (const bool view : {false, true}) {
    spawn_ranks(2, [view](int rank, int) {
      const auto train = [&](bool look) {
        ddp::DistributedDataParallel net(std::make_shared<SpareNet>(), ddp::Options().gradient_as_bucket_view(view));
        torch::optim::Adam optimizer(net.parameters(), 0.01);
        std::optional<GradWatch> watching;
        if (look) watching.emplace(watch_grads(net));
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          loss_of(net(batch(rank, step))).backward();
          if (look) EXPECT_TRUE(grads(net, grads_options()).ok());
          optimizer.step();
        }
        return fingerprint(net.parameters());
      };
      EXPECT_EQ(train(false), train(true));
    });
  }
}

}  // namespace
}  // namespace lockstep::inspect
