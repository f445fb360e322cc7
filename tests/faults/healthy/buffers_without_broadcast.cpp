// Running statistics under `broadcast_buffers(false)`: each rank has its own, and that was asked for.
// ranks: 2
// ok: verify

// %% train
set_seed(1);
auto module = torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8));
auto net = ddp::DistributedDataParallel(module, ddp::Options().broadcast_buffers(false));
torch::optim::SGD optimizer(net.parameters(), 0.1);
set_seed(100 + rank);
for (int step = 0; step < 2; ++step) {
  net.zero_grad();
  net.forward_as<torch::Tensor>(torch::randn({8, 4})).square().mean().backward();
  optimizer.step();
}
%verify net
