// A step by hand with dropout and Adam that repeats itself bit by bit from the same state.
// ranks: 2
// ok: lockstep

// %% model
set_seed(1);
auto net = torch::nn::Sequential(torch::nn::Linear(4, 16), torch::nn::Dropout(0.5), torch::nn::Linear(16, 2));
torch::optim::Adam optimizer(net->parameters());
set_seed(100 + rank);
// %% a step
%%lockstep --self
optimizer.zero_grad();
net->forward(torch::randn({4, 4})).square().mean().backward();
for (auto& parameter : net->parameters()) dist::all_reduce(parameter.grad(), dist::ReduceOp::AVG);
optimizer.step();
