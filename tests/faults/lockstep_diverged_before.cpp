// Replicas that had diverged before: the first layer reads other weights.
// symptom: losses of ranks differ on the same batch
// run: `%%lockstep` over a step
// cause: modules made from different seeds
// fix: `set_seed(n)` before the module is made, or a wrapper
// thread: facebookresearch/detr#544
// ranks: 2
// expect: lockstep:mismatch kind=parameter ranks=0-1 tensor=fc1.weight

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(rank);
auto net = std::make_shared<Net>();
// %% a step
%%lockstep
net->forward(torch::ones({4, 4})).square().mean().backward();
