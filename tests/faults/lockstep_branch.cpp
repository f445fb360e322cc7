// One rank takes another way through forward.
// symptom: replicas diverge, or ranks hang in backward
// run: `%%lockstep` over the step
// cause: a condition that depends on the rank's data
// fix: the same operators on all ranks: `torch::where`, or times zero
// thread: weihaox/UMBRAE#4
// ranks: 3
// expect: lockstep:op_mismatch kind=order ranks=2 reference=0-1

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
// %% a step
%%lockstep
auto x = torch::ones({4, 4}) * (rank + 1);
auto y = net->forward(x);
if (x.max().item<double>() > 2.5) y = torch::tanh(y);
y.square().mean().backward();
