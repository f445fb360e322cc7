// Data with missing values that are replaced before they reach the model.
// ranks: 2
// ok: nan

// %% a step
%%nan
set_seed(1);
torch::nn::Linear net(4, 2);
auto x = torch::randn({4, 4});
x[1][2] = NAN;
auto filled = torch::where(torch::isnan(x), torch::zeros_like(x), x);
net(filled).square().mean().backward();
