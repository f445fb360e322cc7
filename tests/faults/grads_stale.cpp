// One rank swallows an exception of its data loader and goes on: what it brings to the reduction is of the step before.
// symptom: none; the model is slightly worse
// run: `%grads net --watch on`, and `%grads net`
// cause: `catch (...) {}` around the step, followed by the reduction
// fix: skip the step on all ranks (all-reduce a flag), or clear the gradients
// thread: lifeiteng/vall-e#113
// ranks: 2
// severity: note
// exit: 0
// expect: grads:stale kind=gradient ranks=1

// %% by hand
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
torch::optim::SGD optimizer(net->parameters(), 0.1);
%grads net --watch on
set_seed(100 + rank);
for (int step = 0; step < 2; ++step) {
  try {
    if (rank == 1 && step == 1) throw std::runtime_error("a broken image");
    optimizer.zero_grad();
    net->forward(torch::randn({4, 4})).square().mean().backward();
  } catch (const std::exception&) {
  }
  for (auto& parameter : net->parameters()) dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG);
  optimizer.step();
}
%grads net
