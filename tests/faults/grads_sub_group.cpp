// Gradients are averaged within each machine, and never between them.
// symptom: replicas of one machine agree, those of different machines diverge
// run: `%grads net --watch on`, and `%grads net` before the step
// cause: the reduction gets the group of the machine's ranks instead of that of all ranks
// fix: reduce over the default group, or within machines first and then between them
// ranks: 4
// expect: grads:mismatch kind=gradient ranks=0-3 object=net tensors=fc1.weight,fc1.bias,fc2.weight,fc2.bias

// %% by hand
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
auto machine0 = dist::new_group({0, 1}), machine1 = dist::new_group({2, 3});
%grads net --watch on
set_seed(100 + rank);
net->forward(torch::randn({4, 4})).square().mean().backward();
for (auto& parameter : net->parameters())
  dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG, rank < 2 ? machine0 : machine1);
%grads net
