// run: -n 2

// %% numbers, and what is known of a tensor
torch::tensor(2.5)

// %%
torch::tensor({1.0, 2.0, -3.0})

// %% whole numbers, digits, and when they need powers of ten
torch::tensor({0.5, 100.25})

// %%
torch::tensor({1e-5, 1.0})

// %%
torch::tensor({1e9, 1.0})

// %%
torch::tensor({0.0, std::nan(""), -1.0 / 0.0, 1.5})

// %% other types
torch::tensor({{true, false}, {false, true}})

// %%
torch::arange(6).view({2, 3})

// %%
torch::arange(3, torch::kUInt8)

// %%
torch::ones({2}, torch::kBFloat16)

// %% three dimensions
torch::arange(12).view({2, 2, 3}).to(torch::kDouble)

// %% long lines are folded
torch::arange(40)

// %% beyond 1000 elements: the edges
torch::arange(3000)

// %%
torch::arange(10000).view({100, 100})

// %% nothing in it
torch::ones({0, 3})

// %% gradients
auto w = torch::ones({2, 2}, torch::requires_grad());
w

// %%
w * 3

// %% sparse
torch::eye(2).to_sparse()

// %% without a value
torch::Tensor()

// %% containers of tensors
std::vector<torch::Tensor>{torch::ones({2}), torch::zeros({2, 2})}

// %%
std::map<std::string, torch::Tensor>{{"bias", torch::zeros({2})}, {"weight", torch::ones({2, 2})}}

// %% modules are trees
torch::nn::Sequential model(torch::nn::Linear(3, 400), torch::nn::ReLU(), torch::nn::BatchNorm1d(400));
model

// %%
struct Net : torch::nn::Module { torch::nn::Linear fc{3, 2}; Net() { register_module("fc", fc); } };
Net net;
net.fc->weight.set_requires_grad(false);
net

// %%
torch::nn::ReLU()

// %% options
show::options({.precision = 2, .threshold = 4, .edgeitems = 1});
torch::arange(10) * 0.123456

// %%
show::options({.sci_mode = true, .profile = "default"});
torch::tensor({1.0, 2.0})

// %% what can't be set tags=["raises-exception"]
show::options({.precision = 99});

// %% names of ones own
int show = 5;
show
// %% all elements
show::options({.threshold = 4});
torch::arange(8)
// %%
%page torch::arange(8)
// %%
%page std::vector<int>(1001, 7).size() + rank
// %% numbers of the ranks
show::options({.ranks = "range"});
// %%
0.5 * rank
// %%
torch::tensor(1.5f + rank)
// %%
rank == 0 ? 0.0 / 0.0 : 1.0
// %%
show::options({.ranks = "each"});
// %%
rank
// %% no such form tags=["raises-exception"]
show::options({.ranks = "some"});
// %% a guard outside of { } stays
torch::NoGradGuard guard;
%reset guard
// %% tags=["raises-exception"]
(w * 2).sum().backward();
// %%
torch::GradMode::set_enabled(true);
c10::InferenceMode inference;
// %% tags=["raises-exception"]
(w * 2).sum().backward();
// %%
c10::InferenceMode off(false);
(w * 2).sum().backward();
w.grad()
