// A step whose ranks have data of their own, and whose rank 0 prints the loss.
// ranks: 2
// ok: lockstep

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::Adam optimizer(net.parameters());
set_seed(100 + rank);
// %% a step
%%lockstep
auto loss = net(torch::randn({4, 4})).square().mean();
loss.backward();
if (rank == 0) std::cout << "loss " << loss.item<double>() << ", largest weight " << net->fc1->weight.abs().max().item<double>() << '\n';
optimizer.step();
