// The sum is divided on all ranks but one.
// symptom: one replica diverges
// run: `%grads net` before the step
// cause: the division is in a branch that one rank does not take
// fix: divide on every rank, or reduce with AVG
// ranks: 3
// expect: grads:mismatch kind=gradient ranks=0 reference=1-2 object=net tensor=fc1.weight

// %% by hand
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
set_seed(100 + rank);
net->forward(torch::randn({4, 4})).square().mean().backward();
for (auto& parameter : net->parameters()) {
  dist::all_reduce(parameter.grad());
  if (rank != 0) parameter.mutable_grad() /= world_size;
}
%grads net
