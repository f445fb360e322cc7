// One layer's gradient is multiplied once more than the others', alike on every rank.
// symptom: one layer diverges, and all ranks agree
// run: `%grads net --watch on`, and `%grads net` before the step
// cause: a factor for the loss or for a parameter group's learning rate is applied to one layer's gradient
// fix: scale the loss, or the learning rate of a parameter group
// ranks: 2
// severity: note
// exit: 0
// expect: grads:mismatch kind=reduction ranks=0-1 object=net tensors=fc2.weight

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
for (auto& parameter : net->parameters()) dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG);
net->fc2->weight.mutable_grad() *= 4;
%grads net
