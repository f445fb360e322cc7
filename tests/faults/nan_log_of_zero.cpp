// An entropy whose softmax underflows: 0 · log 0.
// symptom: NaN after thousands of good steps
// run: `%%nan` over the step
// cause: log of a probability that has become zero
// fix: `log_softmax`, or `torch::special::entr`, or clamp before the log
// thread: NVIDIA/apex#379
// ranks: 2
// expect: nan:inf kind=forward ranks=1 reference=0 op=log where=here

// %% a step
%%nan
set_seed(1);
torch::nn::Linear net(4, 3);
auto logits = net(torch::ones({2, 4})) * (rank == 1 ? 1e4 : 1.0);
auto p = torch::softmax(logits, 1);
auto log_p = torch::log(p);  // <- here
auto entropy = -(p * log_p).sum();
entropy.backward();
