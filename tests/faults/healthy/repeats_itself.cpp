// A step with dropout and Adam that repeats itself bit by bit from the same state.
// ranks: 2
// ok: lockstep

// %% model
set_seed(1);
auto net = ddp::DistributedDataParallel(torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Dropout(0.5), torch::nn::Linear(16, 2)));
torch::optim::Adam optimizer(net.parameters());
set_seed(100 + rank);
// %% a step
%%lockstep --self
optimizer.zero_grad();
net.forward_as<torch::Tensor>(torch::randn({4, 4})).square().mean().backward();
optimizer.step();
