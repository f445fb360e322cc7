// Gradients that are clipped after the reduction: no longer the mean, and right.
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
%grads net --watch on
set_seed(100 + rank);
(net(torch::randn({4, 4})).square().mean() * 100).backward();
torch::nn::utils::clip_grad_norm_(net.parameters(), 1.0);
%grads net
