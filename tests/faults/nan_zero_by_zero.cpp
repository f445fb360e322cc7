// A masked mean over a mask that is empty on one rank.
// symptom: occasional NaN with small batches
// run: `%%nan` over the step
// cause: 0 / 0 if nothing remains of the batch
// fix: `mask.sum().clamp_min(1)`
// ranks: 2
// expect: nan:nan kind=forward ranks=1 reference=0 op=div where=here

// %% a step
%%nan
set_seed(1);
torch::nn::Linear net(4, 3);
auto mask = rank == 1 ? torch::zeros({2, 3}) : torch::ones({2, 3});
auto masked = net(torch::ones({2, 4})) * mask;
auto loss = masked.sum() / mask.sum();  // <- here
loss.backward();
