// run: -n 3 --keep-going
// exit: 0

// %% a model
struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(4, 8));
    second = register_module("second", torch::nn::Linear(8, 3));
    torch::NoGradGuard guard;
    for (auto& each : parameters()) each.fill_(0.125);
  }
  torch::Tensor forward(torch::Tensor x) {
    return second(torch::relu(first(x)));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
auto net = std::make_shared<Net>();
torch::optim::SGD optimizer(net->parameters(), 0.001);
auto x = torch::ones({2, 4}) + rank;

// %% reduced: data differs, as it may
%%lockstep
optimizer.zero_grad();
net->forward(x).sum().backward();
for (auto& each : net->parameters()) {
  dist::all_reduce(each.grad());
  each.mutable_grad() /= world_size;
}
optimizer.step();
if (rank == 0) std::cout << "done\n";

// %% not reduced tags=["expects-finding=lockstep:mismatch"]
%%lockstep
optimizer.zero_grad();
net->forward(x).sum().backward();
optimizer.step();

// %% a branch tags=["expects-finding=lockstep:op_mismatch"]
%%lockstep
auto y = torch::ones({3}).set_requires_grad(true);
auto z = rank == 1 ? y.exp() : y.sin();
z.sum().backward();

// %% it repeats itself
%%lockstep --self
optimizer.zero_grad();
torch::dropout(net->forward(x), 0.5, true).sum().backward();
optimizer.step();
