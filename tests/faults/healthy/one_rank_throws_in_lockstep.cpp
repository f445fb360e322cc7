// One rank throws behind backward: that it did not come to the update is no fault of its own.
// ranks: 3
// ok: lockstep

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 0.1);
// %% a step tags=["raises-exception"]
%%lockstep
net(torch::ones({4, 4}) * (rank + 1)).square().mean().backward();
if (rank == 1) throw std::runtime_error("the disk is full");
optimizer.step();
