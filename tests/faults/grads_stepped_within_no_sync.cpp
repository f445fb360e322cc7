// Accumulation whose last micro-step is within `no_sync()`, too: the optimizer steps with gradients of its own rank.
// symptom: replicas diverge with the first step
// run: `%grads net --watch on`, and `%grads net` after the step
// cause: an off-by-one in "is this the last micro-step"
// fix: leave `no_sync()` for the last micro-step
// ranks: 2
// expect: grads:mismatch kind=gradient ranks=0-1 object=net tensor=fc1.weight

// %% accumulate
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
for (int micro = 0; micro < 2; ++micro) {
  const auto scope = net.no_sync();
  net(torch::randn({4, 4})).square().mean().backward();
}
optimizer.step();
%grads net
