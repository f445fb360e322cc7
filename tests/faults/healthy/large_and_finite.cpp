// Large losses and gradients under the watch for NaN: large is not Inf.
// ranks: 2
// options: --check-collectives on

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 1e-30);
%nan on
// %% train
for (int step = 0; step < 3; ++step) {
  net.zero_grad();
  (net(torch::randn({4, 4})).square().mean() * 1e30).backward();
  optimizer.step();
}
%nan status
