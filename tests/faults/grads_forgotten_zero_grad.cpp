// One rank goes on after a failed batch without clearing its gradients.
// symptom: none; gradients are equal on all ranks, and wrong
// run: `%grads net --watch on`, and `%grads net` after backward
// cause: `zero_grad()` is in a branch that one rank does not take
// fix: clear the gradients on every rank, at the beginning of each step
// ranks: 3
// expect: grads:mismatch kind=gradient ranks=1 reference=0,2 object=net tensor=fc1.weight step=2

// %% train
struct Net : torch::nn::Module {
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(4, 8))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(8, 2))};
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
};
set_seed(1);
auto net = ddp::DistributedDataParallel(std::make_shared<Net>());
torch::optim::SGD optimizer(net.parameters(), 0.1);
%grads net --watch on
set_seed(100 + rank);
for (int step = 0; step < 2; ++step) {
  const bool retry = rank == 1 && step == 1;
  if (!retry) optimizer.zero_grad();
  net(torch::randn({4, 4})).square().mean().backward();
  if (step == 0) optimizer.step();
}
%grads net
