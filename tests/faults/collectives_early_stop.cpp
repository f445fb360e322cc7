// One rank stops early by its own validation loss, and goes to the barrier behind the loop.
// symptom: a hang at the end of an epoch
// ask: nothing: it is told before data moves
// cause: the decision to stop is made on each rank by its own numbers
// mend: broadcast rank 0's decision, or all-reduce it
// thread: Lightning-AI/pytorch-lightning#379
// ranks: 3
// expect: collectives:op_mismatch ranks=1 reference=0,2

// %% train until it gets no better
auto gradient = torch::ones({8});
for (int epoch = 0; epoch < 3; ++epoch) {
  const double validation_loss = rank == 1 && epoch == 1 ? 2.0 : 1.0;
  if (validation_loss > 1.5) break;
  dist::all_reduce(gradient);
}
dist::barrier();
