// A normalisation by the standard deviation of a batch of one.
// symptom: NaN with the last, smaller batch of an epoch
// run: `%%nan` over the step
// cause: the unbiased deviation of one sample is 0 / 0
// fix: drop the last batch, or `unbiased=false` and an epsilon
// thread: pytorch/pytorch#4320
// ranks: 2
// expect: nan:nan kind=forward ranks=1 reference=0 op=std where=here

// %% a step
%%nan
set_seed(1);
torch::nn::Linear net(4, 3);
auto y = net(torch::randn({rank == 1 ? 1 : 4, 4}));
auto deviation = y.std(0);  // <- here
(y / (deviation + 1e-5)).sum().backward();
