// A distance between two equal points: forward is zero, backward divides by it.
// symptom: the loss is finite, but parameters are NaN
// run: `%%nan` over the step
// cause: the slope of sqrt at 0 is infinite, and 0 · Inf is NaN
// fix: `(d + 1e-12).sqrt()`, or `torch::norm`, whose slope at 0 is 0
// thread: richzhang/PerceptualSimilarity#69
// ranks: 2
// expect: nan:inf kind=backward ranks=0-1 op=div

// %% a step
%%nan
set_seed(1);
torch::nn::Linear net(4, 3);
auto a = net(torch::ones({2, 4}));
auto distance = torch::sqrt((a - a.detach()).square().sum(1));
distance.sum().backward();
