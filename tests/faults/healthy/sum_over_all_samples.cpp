// A loop by hand whose loss is divided by the samples of all ranks: the sum of gradients is right there.
// thread: ChenmienTan/RL2#11
// ranks: 2
// ok: grads

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
const int64_t samples = 4 + rank, samples_of_all = 9;
(net->forward(torch::randn({samples, 4})).square().mean(1).sum() / samples_of_all).backward();
for (auto& parameter : net->parameters()) dist::all_reduce(parameter.grad());
%grads net
