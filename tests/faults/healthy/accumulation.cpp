// Gradients of four micro-steps, three of them within `no_sync()`.
// ranks: 2
// ok: grads

// %% train
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 0.1);
%grads net --watch on
set_seed(100 + rank);
{
  const auto scope = net.no_sync();
  for (int micro = 0; micro < 3; ++micro) (net(torch::randn({4, 4})).square().mean() / 4).backward();
}
(net(torch::randn({4, 4})).square().mean() / 4).backward();
%grads net
optimizer.step();
%verify net optimizer
