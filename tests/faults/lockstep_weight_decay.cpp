// Another weight decay on one rank.
// symptom: replicas diverge slowly although gradients are equal
// run: `%%lockstep` over the step, or `%verify optimizer`
// cause: configuration files that differ
// fix: broadcast the configuration from rank 0
// ranks: 3
// expect: lockstep:mismatch kind=update ranks=2 reference=0-1

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).weight_decay(rank == 2 ? 1e-3 : 1e-2));
// %% a step
%%lockstep
net->forward(torch::ones({4, 4})).square().mean().backward();
optimizer.step();
