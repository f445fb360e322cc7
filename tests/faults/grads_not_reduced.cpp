// A loop by hand that reduces the first layer and has forgotten the second.
// symptom: replicas diverge from the first step
// run: `%grads net` before the step
// cause: parameters that were added later are not in the list that is reduced
// fix: reduce `net->parameters()`
// thread: pytorch/pytorch#104336
// ranks: 2
// expect: grads:mismatch kind=gradient ranks=0-1 object=net tensors=fc2.weight,fc2.bias

// %% by hand
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
%grads net --watch on
set_seed(100 + rank);
net->forward(torch::randn({4, 4})).square().mean().backward();
for (auto& parameter : net->fc1->parameters()) dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG);
%grads net
