// Dropout that each rank draws from its own seed: outputs differ, replicas do not.
// ranks: 2
// ok: verify

// %% train
set_seed(1);
auto module = torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Dropout(0.5), torch::nn::Linear(16, 2));
auto net = ddp::DistributedDataParallel(module);
torch::optim::SGD optimizer(net.parameters(), 0.1);
set_seed(100 + rank);
%grads net --watch on
for (int step = 0; step < 3; ++step) {
  net.zero_grad();
  net.forward_as<torch::Tensor>(torch::ones({4, 4})).square().mean().backward();
  optimizer.step();
}
%verify net optimizer
%grads net
