// A loop by hand divides the sum by the batch size, and not by the number of ranks.
// symptom: learns as if the learning rate were too small, on all ranks alike
// run: `%grads net --watch on`, and `%grads net` before the step
// cause: the loss is already a mean, and the gradient is divided by the batch size again
// fix: divide by the number of ranks; if the factor is intended, `%grads net --factor F`
// ranks: 2
// severity: note
// exit: 0
// expect: grads:mismatch kind=reduction ranks=0-1 object=net tensor=fc1.weight

// %% by hand
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
%grads net --watch on
const int64_t batch = 16;
set_seed(100 + rank);
net->forward(torch::randn({batch, 4})).square().mean().backward();
for (auto& parameter : net->parameters()) {
  dist::all_reduce(parameter.grad());
  parameter.mutable_grad() /= batch;
}
%grads net
