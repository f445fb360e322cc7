// Each rank divides its loss by the tokens that it has itself, and ranks have different numbers of them.
// symptom: the loss falls slower than on one rank, although gradients and replicas are equal
// run: `%%lockstep` over the step
// cause: the loss does not count padding, of which each rank's batch has a different amount
// fix: all-reduce the number of tokens, divide the sum of losses by it, and multiply by the number of ranks
// thread: huggingface/transformers#34242
// ranks: 2
// severity: note
// exit: 0
// expect: lockstep:uneven_data kind=count ranks=0-1 op=cross_entropy_loss

// %% model
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
torch::nn::functional::cross_entropy(net(x), target).backward();
optimizer.step();
