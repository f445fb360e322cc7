// A loop by hand whose ranks make their modules from different seeds.
// symptom: the loss of each rank falls, but training makes no progress
// run: `%verify net` before the first step
// cause: generators are not seeded, or with the rank's number, and no wrapper broadcasts rank 0's values
// fix: `set_seed(n)` with the same n before the module is made, or DistributedDataParallel
// thread: bl0/moco#4
// ranks: 2
// expect: verify:mismatch kind=parameter ranks=0-1 object=net tensor=fc1.weight

// %% modules of their own
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(rank);
auto net = std::make_shared<Net>();
%verify net
