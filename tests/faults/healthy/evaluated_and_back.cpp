// Validation between two epochs: in eval() on all ranks, with a part of the network that stays in it for good.
// ranks: 2
// ok: verify

// %% validate
struct Net : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(4, 8))};
  torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(8))};
  torch::Tensor forward(const torch::Tensor& x) { return norm(fc(x)); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
net->eval();
%verify net
net->train();
net->norm->eval();
%verify net
