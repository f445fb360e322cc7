// One rank has fewer batches, under `join`.
// ranks: 2
// ok: verify

// %% train
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 0.1);
set_seed(100 + rank);
net.join([&] {
  for (int i = 0; i < (rank == 0 ? 4 : 2); ++i) {
    net.zero_grad();
    net(torch::randn({4, 4})).square().mean().backward();
    optimizer.step();
  }
});
%verify net
