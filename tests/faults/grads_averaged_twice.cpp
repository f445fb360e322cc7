// A loop by hand that divides what was averaged already.
// symptom: learns as if the learning rate were divided by the number of ranks
// run: `%grads net --watch on`, and `%grads net` before the step
// cause: AVG and a division, or a division in a wrapper and one by hand
// fix: leave one of them out
// thread: sanderwood/bgpt#5
// ranks: 2
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
set_seed(100 + rank);
net->forward(torch::randn({4, 4})).square().mean().backward();
for (auto& parameter : net->parameters()) {
  dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG);
  parameter.mutable_grad() /= world_size;
}
%grads net
