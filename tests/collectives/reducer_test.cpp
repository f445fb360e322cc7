// c10d's own Reducer, broadcast_coalesced and the like work over the watched backend: replicas stay bit-equal, and what
// they send is in the log.
#include <torch/torch.h>

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "collectives/dist.h"
#include "collectives/session_group.h"
#include "tests/support/spawn_ranks.h"

namespace lockstep {
namespace {

std::shared_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& parameters) {
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {1 << 12});
  std::reverse(buckets.begin(), buckets.end());
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) names[i] = std::to_string(i);
  return std::make_shared<c10d::Reducer>(parameters, buckets, dist::default_group(),
                                         std::vector<bool>(parameters.size()), 1 << 12, false, false, names, 1 << 10,
                                         false, false, std::vector<int64_t>{});
}

void train(int rank, int size) {
  torch::manual_seed(rank);
  torch::nn::Sequential net(torch::nn::Linear(20, 40), torch::nn::ReLU(), torch::nn::Linear(40, 5));
  const std::vector<at::Tensor> parameters = net->parameters();
  c10d::verify_params_across_processes(dist::default_group(), parameters, {});
  {
    const torch::NoGradGuard no_grad;
    c10d::broadcast_coalesced(dist::default_group(), parameters, 1 << 20, 0);
  }
  const auto reducer = make_reducer(parameters);
  torch::optim::SGD optimizer(parameters, 0.1);
  torch::manual_seed(100 + rank);  // data of its own
  const int64_t before = dist::progress().at("default");
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    reducer->prepare_for_forward();
    reducer->rebuild_buckets();
    const at::Tensor loss = net->forward(torch::randn({8, 20})).pow(2).mean();
    reducer->prepare_for_backward({});
    loss.backward();
    optimizer.step();
  }
  EXPECT_GE(dist::progress().at("default") - before, 50);  // a bucket or more in each step
  for (const auto& record : dist::last_collectives(20)) EXPECT_EQ(record.state, dist::CollectiveState::done);
  for (const at::Tensor& parameter : parameters)
    for (const at::Tensor& replica : dist::all_gather(parameter.detach())) EXPECT_TRUE(replica.equal(parameter));
}

TEST(Reducer, KeepsReplicasBitEqualOverProcesses) { testing::spawn_processes(2, train); }
TEST(Reducer, KeepsReplicasBitEqualOverThreads) { testing::spawn_ranks(3, train); }

TEST(Reducer, GoesOnAfterARegroup) {
  testing::spawn_ranks(2, [](int rank, int size) {
    torch::manual_seed(0);
    torch::nn::Linear net(8, 8);
    const auto reducer = make_reducer(net->parameters());
    const auto step = [&] {
      net->zero_grad();
      reducer->prepare_for_forward();
      const at::Tensor loss = net->forward(torch::full({2, 8}, static_cast<double>(rank))).sum();
      reducer->prepare_for_backward({});
      loss.backward();
      return net->weight.grad().clone();
    };
    const at::Tensor first = step();
    dist::abort("between two steps");
    EXPECT_THROW(dist::barrier(), dist::Aborted);
    dist::regroup(1, RankSet::all(size));
    EXPECT_TRUE(step().equal(first));
  });
}

}  // namespace
}  // namespace lockstep
