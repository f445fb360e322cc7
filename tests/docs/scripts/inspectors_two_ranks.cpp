// What docs/inspectors.md quotes of sessions with two ranks.
// run: -n 2
// columns: 155

// %% a model, and gradients that rank 1 has doubled
set_seed(1);
struct Net : torch::nn::Module {
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(3, 2));
  torch::Tensor forward(torch::Tensor x) { return fc(x); }
};
Net net;
{
  torch::NoGradGuard guard;
  for (auto& each : net.parameters()) each.fill_(0.5);
}
torch::optim::SGD optimizer(net.parameters(), 0.1);
net.forward(torch::ones({2, 3})).sum().backward();
if (rank == 1) net.fc->weight.mutable_grad() *= 2;
optimizer.step();
// %% diagnose tags=["expects-finding=grads:mismatch", "expects-finding=verify:mismatch"]
%diagnose net optimizer

// %% verify files tags=["expects-finding=verify:mismatch"]
%verify --files tests/inspectors/files/checkpoint-0.pt tests/inspectors/files/checkpoint-1.pt

// %% groups of the same two ranks
auto first = dist::new_group({0, 1}), second = dist::new_group({0, 1});
auto pair = torch::ones({2});
for (auto& group : {first, second}) dist::all_reduce(pair, dist::ReduceOp::SUM, group);
dist::broadcast(pair, 0);
// %% collectives
%collectives -n 3

// %% indices
torch::data::samplers::DistributedRandomSampler sampler(50000, world_size, rank);
torch::manual_seed(1);
auto indices = torch::randperm(50000);
std::vector<int64_t> uneven(rank == 0 ? 100 : 90);
for (size_t i = 0; i < uneven.size(); ++i) uneven[i] = static_cast<int64_t>(i * 2) + rank;
// %% data
%data sampler --size 50000 --batch-size 64
// %% data tags=["expects-finding=data:duplicate_data"]
%data indices --size 50000
// %% data tags=["expects-finding=data:uneven_data"]
%data uneven --batch-size 10

// %% a wrapper
%timeline on
%memory on
torch::nn::Sequential module(torch::nn::Linear(1024, 1024), torch::nn::ReLU(), torch::nn::Linear(1024, 1024));
auto wrapped = ddp::DistributedDataParallel(module, ddp::Options().bucket_cap_mb(4));
torch::optim::Adam adam(wrapped.parameters());
auto batch = torch::ones({64, 1024});
auto step = [] {
  adam.zero_grad();
  wrapped.forward_as<torch::Tensor>(batch).pow(2).mean().backward();
  inspect::step(adam);
};
// %% training
for (int i = 0; i < 5; ++i) step();
// %% memory
%memory wrapped adam
// %% buckets
%buckets wrapped
// %% the end of the recording
%memory off
%timeline off
// %% timeline
%timeline trace.json
// %% a rank that is slow
#include <thread>
torch::nn::Linear layer(64, 64);
auto small = ddp::DistributedDataParallel(layer);
torch::optim::SGD sgd(small.parameters(), 0.1);
auto slow_step = [] {
  std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 120 : 60));
  sgd.zero_grad();
  small(torch::ones({8, 64})).pow(2).mean().backward();
  sgd.step();
};
// %% time_sync
%time_sync slow_step small sgd --steps 5

// %% an update that overflows
torch::nn::Linear steep(4, 2);
torch::optim::SGD descent(steep->parameters(), 1e38);
%nan on
// %% nan sentinel tags=["expects-finding=nan:inf"]
auto sum = steep(torch::ones({4, 4})).sum() * 100;
sum.backward();
descent.step();

// %% out of memory tags=["raises-exception"]
auto activations = torch::zeros({4096, 1024});
if (rank == 1) TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB");
