// A loop by hand that has no reduction at all.
// symptom: replicas diverge with the first step
// run: `%%lockstep` over the step
// cause: gradients are not reduced
// fix: all-reduce them before the step
// ranks: 2
// expect: lockstep:mismatch kind=update ranks=0-1

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
torch::optim::SGD optimizer(net->parameters(), 0.1);
// %% a step
%%lockstep
net->forward(torch::ones({4, 4}) * (rank + 1)).square().mean().backward();
optimizer.step();
