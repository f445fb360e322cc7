// A weight that two modules share is reduced for each of them.
// symptom: the shared layer learns faster than its learning rate says
// run: `%grads net --watch on`, and `%grads net` before the step
// cause: a loop over the layers' parameters visits a shared one twice
// fix: reduce `net->parameters()`, which lists each once
// ranks: 2
// severity: note
// exit: 0
// expect: grads:mismatch kind=reduction ranks=0-1 object=net tensors=in.weight

// %% layer by layer
struct Net : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(6, 6))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(6, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::tanh(torch::linear(torch::tanh(in(x)), in->weight))); }
  std::vector<std::vector<torch::Tensor>> layers() { return {in->parameters(), {in->weight}, head->parameters()}; }
};
set_seed(1);
auto net = std::make_shared<Net>();
%grads net --watch on
set_seed(100 + rank);
net->forward(torch::randn({4, 6})).square().mean().backward();
for (auto& layer : net->layers())
  for (auto& parameter : layer) dist::all_reduce(parameter.grad());
%grads net
