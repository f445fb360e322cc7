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

// %% rank 1 threw: the others are compared tags=["raises-exception"]
%%lockstep
auto w = torch::ones({3}).set_requires_grad(true);
(w * 2).sum().backward();
if (rank == 1) throw std::runtime_error("only here");
w.detach().sub_(w.grad());

// %% all threw: they are compared as far as they came tags=["raises-exception", "expects-finding=lockstep:mismatch"]
%%lockstep
(w * 2).sum().backward();
if (rank == 1) throw std::runtime_error("here");
(w * 3).sum().backward();
throw std::runtime_error("there");

// %% rank 1 threw before it did anything tags=["raises-exception"]
%%lockstep
auto v = w * 2;
if (rank == 1) throw std::runtime_error("here");
v.sum().backward();
throw std::runtime_error("there");

// %% not compiled tags=["raises-exception"]
%%lockstep
nothing_of_that_name;

// %% nor here tags=["raises-exception"]
%%nan
nothing_of_that_name;

// %% it repeats itself
%%lockstep --self
optimizer.zero_grad();
torch::dropout(net->forward(x), 0.5, true).sum().backward();
optimizer.step();
