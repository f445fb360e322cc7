// Gradients that are zeroed in place, and those of an accumulation: no backward adds to what an optimizer has used.
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
for (int step = 0; step < 3; ++step) {
  optimizer.zero_grad(/*set_to_none=*/false);
  {
    const auto scope = net.no_sync();
    (net(torch::randn({4, 4})).square().mean() / 2).backward();
  }
  (net(torch::randn({4, 4})).square().mean() / 2).backward();
  optimizer.step();
}
%grads net
