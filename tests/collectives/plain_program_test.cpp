// A program that links Lockstep::lockstep alone, without the functions of the C library that liblockstep_interpose
// replaces. The tests of this program's other files, all of which also run with the interposer, show what works without
// it as well.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "inspectors/trace/call_site.h"
#include "lockstep/ddp.h"
#include "lockstep/dist.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

TEST(PlainProgram, HasNoInterposer) {
  EXPECT_FALSE(dist::is_interposer_active());
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "lockstep_interpose_set_hooks"), nullptr);
}

std::string here(int line) { return __FILE__ ":" + std::to_string(line); }

TEST(PlainProgram, ErrorsNameItsLines) {
  testing::spawn_processes(2, [](int rank, int) {
    try {
      if (rank == 0)
        dist::all_reduce(torch::ones({2}));
      else
        dist::broadcast(torch::ones({2}), 0);
      FAIL() << "the calls differ";
    } catch (const dist::CollectiveMismatch& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("(" + here(__LINE__ - 6) + ")"), std::string::npos) << text;
      EXPECT_NE(text.find("(" + here(__LINE__ - 5) + ")"), std::string::npos) << text;
    }
  });
}

TEST(PlainProgram, FindingsNameItsLines) {
  EXPECT_EQ(inspect::describe_call_site(inspect::capture_call_site()), here(__LINE__));
}

TEST(PlainProgram, TrainsOnTwoRanks) {
  testing::spawn_processes(2, [](int rank, int size) {
    torch::manual_seed(1);
    torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 1));
    torch::nn::Sequential alone(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 1));
    for (size_t i = 0; i < model->parameters().size(); ++i)
      alone->parameters()[i].data().copy_(model->parameters()[i].data());
    ddp::DistributedDataParallel replica(model);
    torch::optim::SGD optimizer(replica->parameters(), 0.1), alone_optimizer(alone->parameters(), 0.1);
    for (int step = 0; step < 5; ++step) {
      const at::Tensor batch = torch::randn({8, 4}), target = batch.sum(1, /*keepdim=*/true);
      const auto own = [&](const at::Tensor& all) { return all.chunk(size)[static_cast<size_t>(rank)]; };
      optimizer.zero_grad();
      torch::mse_loss(replica.forward(own(batch)), own(target)).backward();
      optimizer.step();
      alone_optimizer.zero_grad();
      torch::mse_loss(alone->forward(batch), target).backward();
      alone_optimizer.step();
    }
    for (size_t i = 0; i < alone->parameters().size(); ++i)
      EXPECT_TRUE(torch::allclose(model->parameters()[i], alone->parameters()[i], 1e-5, 1e-6)) << "parameter " << i;
  });
}

}  // namespace
}  // namespace lockstep
