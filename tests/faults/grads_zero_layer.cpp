// A layer whose output is detached before the loss, and whose weights come into it times zero.
// symptom: one layer stays as it was initialised, on all ranks
// run: `%grads net` after backward
// cause: `detach()`, a dead activation, or a term that was switched off by a factor of zero
// fix: find where the layer is cut off; if that is intended, freeze it
// ranks: 2
// severity: note
// exit: 0
// expect: grads:unused kind=gradient ranks=0-1 object=net tensors=fc1.weight,fc1.bias

// %% a switch that was left off
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(4, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(x).square().mean() + 0.0 * fc1(x).square().mean(); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
set_seed(100 + rank);
net(torch::randn({4, 4})).backward();
%grads net
