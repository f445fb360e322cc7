// A head that forward no longer calls.
// symptom: part of the model never learns
// run: `%grads net` after backward
// cause: a layer that was left over, or an output that no loss uses
// fix: remove it, freeze it, or use it
// thread: weihaox/UMBRAE#4
// ranks: 2
// severity: note
// exit: 0
// expect: grads:unused kind=gradient ranks=0-1 object=net tensors=aux.weight,aux.bias

// %% an output that no loss uses
struct Net : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(4, 4))};
  torch::nn::Linear aux{register_module("aux", torch::nn::Linear(4, 2))};
};
set_seed(1);
auto net = std::make_shared<Net>();
net->fc(torch::ones({2, 4}) * (rank + 1)).sum().backward();
for (auto& parameter : net->fc->parameters()) dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG);
%grads net
