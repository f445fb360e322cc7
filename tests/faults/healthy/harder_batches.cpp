// Batches of unlike difficulty: one rank's gradient is three times as large.
// ranks: 3
// ok: grads

// %% before the reduction
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
set_seed(100 + rank);
(net->forward(torch::randn({16, 4}) * (rank == 1 ? 1.5 : 1.0)).square().mean()).backward();
%grads net --local
