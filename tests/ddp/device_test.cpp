// DistributedDataParallel with one fake device for each rank, over Gloo through host memory. Replicas have the bits of
// those on the CPU: under the late schedule, and with freed memory overwritten, only if every wait and every record of
// a stream is there.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "collectives/dist.h"
#include "lockstep/ddp.h"
#include "tests/ddp/models.h"
#include "tests/support/fake_device/fake_device.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep::ddp {
namespace {

using fake::Schedule;

struct NormNetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(norm(first(x)))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(8, 6));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(6));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(6, 3));
};
TORCH_MODULE(NormNet);

torch::Tensor batch(int rank, int step) {
  return torch::arange(32.0).reshape({4, 8}).mul(0.3).add(rank + 2 * step).sin();
}

template <typename Model>
torch::Tensor trained(c10::Device device, const dist::Group& group, int rank, Options options,
                      const std::function<void(DistributedDataParallel<typename Model::ContainedType>&)>& prepare) {
  Model model;
  {
    const torch::NoGradGuard no_grad;
    for (auto& each : model->parameters())
      each.copy_(torch::arange(each.numel()).reshape(each.sizes()).mul(0.37).add(rank).sin().mul(0.3));
  }
  if (device != torch::kCPU) fake::move_to(*model, device);
  DistributedDataParallel<typename Model::ContainedType> net(model, options.process_group(group));
  if (prepare) prepare(net);
  torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(0.01));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    net(batch(rank, step).to(device)).square().mean().backward();
    optimizer.step();
  }
  std::vector<torch::Tensor> parts;
  for (const auto& each : net.parameters()) parts.push_back(each.detach().cpu().flatten());
  for (const auto& each : model->buffers()) parts.push_back(each.cpu().to(torch::kFloat).flatten());
  return torch::cat(parts);
}

/// The same training on the CPU and on the fake device, in each schedule.
template <typename Model>
void expect_the_cpus_bits(
    const Options& options,
    const std::function<void(DistributedDataParallel<typename Model::ContainedType>&)>& prepare = {}) {
  testing::spawn_processes(
      2,
      [&](int rank, int) {
        c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).setDevice(fake::device(rank));
        torch::set_num_threads(1);
        const auto on_cpu = dist::new_group({}, std::chrono::minutes(5), "gloo");
        const auto expected = trained<Model>(torch::kCPU, on_cpu, rank, options, prepare);
        for (const Schedule schedule : {Schedule::late, Schedule::eager}) {
          const fake::Scope scope(
              {.schedule = schedule,
               .poison = true,
               .delays = schedule == Schedule::eager
                             ? std::map<std::string, std::chrono::microseconds>{{"copy", std::chrono::milliseconds(2)}}
                             : std::map<std::string, std::chrono::microseconds>()});
          EXPECT_TRUE(torch::equal(trained<Model>(fake::device(rank), {}, rank, options, prepare), expected))
              << "rank " << rank << (schedule == Schedule::late ? ", late" : ", eager");
        }
      },
      testing::RankOptions{.backend = "gloo_fake"});
}

TEST(DdpOnDevices, HasTheBitsOfTheCpu) { expect_the_cpus_bits<test::Mlp>(Options().bucket_cap_mb(0.0005)); }

TEST(DdpOnDevices, WithGradientsInBuckets) {
  expect_the_cpus_bits<test::Mlp>(Options().bucket_cap_mb(0.0005).gradient_as_bucket_view(true));
}

TEST(DdpOnDevices, WithASearchForUnusedParameters) {
  expect_the_cpus_bits<test::Mlp>(Options().find_unused_parameters(true));
}

TEST(DdpOnDevices, WithBuffers) { expect_the_cpus_bits<NormNet>(Options()); }

TEST(DdpOnDevices, WithAHookThatCompresses) {
  expect_the_cpus_bits<test::Mlp>(Options(), [](DistributedDataParallel<test::MlpImpl>& net) {
    net.register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
  });
}

}  // namespace
}  // namespace lockstep::ddp
