// Ranks with different numbers of tokens, whose loss is divided by those of all ranks.
// ranks: 2
// ok: lockstep

// %% train
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 0.1);
set_seed(100 + rank);
auto x = torch::randn({8, 4});
auto target = torch::arange(8) % 2;
if (rank == 1) target.slice(0, 0, 5).fill_(-100);
// %% a step
%%lockstep
optimizer.zero_grad();
auto tokens = (target != -100).sum();
dist::all_reduce(tokens);
auto losses = torch::nn::functional::cross_entropy(
    net(x), target, torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
(losses / tokens * world_size).backward();
optimizer.step();
