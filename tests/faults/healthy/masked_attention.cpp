// A causal mask of -inf, which softmax turns into zeros.
// ranks: 2
// ok: nan

// %% a step
%%nan
set_seed(1);
torch::nn::Linear net(4, 4);
auto scores = net(torch::ones({4, 4}));
auto mask = torch::triu(torch::full({4, 4}, -INFINITY), 1);
auto weights = torch::softmax(scores + mask, 1);
weights.square().sum().backward();
