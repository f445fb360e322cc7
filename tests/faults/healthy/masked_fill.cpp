// Padding that is filled with -inf before softmax, on rows that have other keys.
// ranks: 2
// ok: nan

// %% a step
%%nan
set_seed(1);
torch::nn::Linear net(4, 4);
auto padding = torch::zeros({4, 4}, torch::kBool);
padding.index_put_({torch::indexing::Slice(), 3}, true);
auto weights = torch::softmax(net(torch::ones({4, 4})).masked_fill(padding, -INFINITY), 1);
weights.square().sum().backward();
