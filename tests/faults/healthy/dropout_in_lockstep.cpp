// Dropout that each rank draws from its own seed, operator by operator.
// ranks: 2
// ok: lockstep

// %% model
set_seed(1);
auto net = ddp::DistributedDataParallel(torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Dropout(0.5), torch::nn::Linear(16, 2)));
torch::optim::SGD optimizer(net.parameters(), 0.1);
set_seed(100 + rank);
// %% a step
%%lockstep
net.forward_as<torch::Tensor>(torch::ones({4, 4})).square().mean().backward();
optimizer.step();
