// run: -n 2
// Generators that nobody has seeded differ between ranks, and that is no fault. An averaging reduction has one operator.
// %% the same everywhere
torch::nn::Linear net(2, 2);
for (auto& each : net->parameters()) dist::broadcast(each.detach(), 0);
// %% diagnose
%diagnose net
// %% averages
%%lockstep
auto mean = torch::full({4}, rank + 1.0);
dist::all_reduce(mean, dist::ReduceOp::AVG);
auto doubled = mean * 2;
