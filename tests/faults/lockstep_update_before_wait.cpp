// The optimizer steps before an asynchronous reduction has been waited for.
// symptom: replicas diverge occasionally, more often with larger models
// run: `%%lockstep` over the step
// cause: `work.wait()` comes after `optimizer.step()`
// fix: wait for the work before anything reads the gradients
// varies: how much of the reduction the update has read depends on when it came
// ranks: 2
// expect: lockstep:mismatch kind=update ranks=0-1 tensor=fc1.weight

// %% model
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = std::make_shared<Net>();
torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).weight_decay(0.01));
set_seed(100 + rank);
auto x = torch::randn({4, 4});
// %% a pipe, so that rank 1 comes to the reduction when rank 0 has stepped
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
if (rank == 0) mkfifo("stepped", 0600);
dist::barrier();
const int stepped = open("stepped", O_RDWR);
// %% a step
%%lockstep
net->forward(x).square().mean().backward();
char byte = 0;
if (rank == 1) (void)!read(stepped, &byte, 1);
std::vector<dist::Work> works;
for (auto& each : net->parameters()) works.push_back(dist::all_reduce(each.grad(), dist::ReduceOp::SUM, {}, /*async_op=*/true));
optimizer.step();
if (rank == 0) (void)!write(stepped, &byte, 1);
for (auto& work : works) work.wait();
