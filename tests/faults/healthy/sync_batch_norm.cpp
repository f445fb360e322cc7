// BatchNorm over the batches of all ranks: buffers are equal although batches are not.
// ranks: 2
// ok: verify

// %% train
struct Net : torch::nn::Module {
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(4, 8))};
  ddp::SyncBatchNorm bn{register_module("bn", ddp::SyncBatchNorm(8))};
  torch::Tensor forward(const torch::Tensor& x) { return bn(fc(x)); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
set_seed(100 + rank);
net(torch::randn({8, 4})).square().mean().backward();
%verify net
%grads net
