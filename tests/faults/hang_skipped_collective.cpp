// A metric that rank 0 alone reduces, for its log.
// symptom: training stands still after an epoch, all GPUs at 100%
// run: nothing: reported within a second
// cause: a collective in `if (rank == 0)`
// fix: reduce on every rank, print on one
// thread: Lightning-AI/pytorch-lightning#7129
// ranks: 2
// exit: 4
// expect: hang:hang kind=finished ranks=1 reference=0 op=all_reduce where=here

// %% log
auto metric = torch::ones({1}) * rank;
dist::all_reduce(metric);
if (rank == 0) {
  dist::all_reduce(metric);  // <- here
  std::cout << metric.item<double>() << '\n';
}
