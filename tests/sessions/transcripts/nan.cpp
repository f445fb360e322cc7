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
    x = torch::relu(first(x));
    return second(x - 10).log();
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
auto net = std::make_shared<Net>();
torch::optim::SGD optimizer(net->parameters(), 0.1);
auto x = torch::ones({2, 4});

// %% forward tags=["expects-finding=nan:nan"]
%%nan
optimizer.zero_grad();
auto loss = net->forward(x).sum();
loss.backward();

// %% backward, on one rank tags=["expects-finding=nan:nan"]
%%nan
auto w = torch::tensor({0.0, 4.0}).set_requires_grad(true);
auto root = rank == 1 ? w.sqrt() : w * 2;
(root * torch::tensor({0.0, 1.0})).sum().backward();

// %% masks are no findings
%%nan
auto scores = torch::zeros({3, 3}).set_requires_grad(true);
auto mask = torch::ones({3, 3}, torch::kBool).triu(1);
auto weights = torch::softmax(scores.masked_fill(mask, -INFINITY), -1);
weights.square().sum().backward();

// %% the sentinel tags=["expects-finding=nan:inf"]
%nan on
torch::Tensor v = torch::ones({2}).set_requires_grad(true);
if (rank == 2) (v * 1000).exp().sum().backward(); else v.sum().backward();
%nan off

// %% a watch
%nan on

// %% a module that came later
torch::nn::Linear later(4, 2);
torch::optim::SGD descent(later->parameters(), 1e38);

// %% it is known by its name tags=["expects-finding=nan:inf"]
(later(torch::ones({4, 4})).sum() * 100).backward();
descent.step();

// %% another one
later = torch::nn::Linear(3, 1);
torch::optim::SGD gentle(later->parameters(), 0.1), steeper(later->parameters(), 1e38);
later(torch::ones({4, 3})).sum().backward();
gentle.step();

// %% under the same name, on one rank tags=["expects-finding=nan:inf"]
later->zero_grad();
(later(torch::ones({4, 3})).sum() * (rank == 1 ? 100 : 0)).backward();
steeper.step();
