// One rank skips backward and the update of a batch that it takes for bad.
// symptom: replicas diverge
// run: `%%lockstep` over the step
// cause: `if (loss is good) { loss.backward(); optimizer.step(); }`, decided by each rank for itself
// fix: decide together: all-reduce a flag, or step on all ranks with a loss times zero
// ranks: 3
// expect: lockstep:op_mismatch kind=order ranks=1 reference=0,2 where=here

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
torch::optim::SGD optimizer(net->parameters(), 0.1);
net->forward(torch::ones({4, 4})).square().mean().backward();
// %% a step
%%lockstep
optimizer.zero_grad();
if (rank == 0) std::cout << torch::ones({2}).sum().item<float>() << "\n";
auto loss = net->forward(torch::ones({4, 4}) * (rank == 1 ? 100 : 1)).square().mean();
if (loss.item<double>() < 100) {
  loss.backward();  // <- here
  optimizer.step();
}
