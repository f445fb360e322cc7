// The learning rate changes in the same way on all ranks.
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
torch::optim::AdamW optimizer(net.parameters(), 1e-2);
torch::optim::StepLR scheduler(optimizer, 1, 0.5);
set_seed(100 + rank);
for (int step = 0; step < 3; ++step) {
  net.zero_grad();
  net(torch::randn({4, 4})).square().mean().backward();
  optimizer.step();
  scheduler.step();
}
%verify net optimizer
