// Each rank seeds with its own number, and the wrapper makes the replicas equal: as DETR, nanoGPT and many others do.
// thread: karpathy/nanoGPT#22
// ranks: 3
// ok: verify

// %% wrap
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(rank);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 0.1);
net(torch::randn({4, 4})).square().mean().backward();
optimizer.step();
%verify net optimizer
