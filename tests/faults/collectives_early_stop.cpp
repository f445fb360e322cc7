// One rank stops early by its own validation loss, and goes to the barrier behind the loop.
// symptom: a hang at the end of an epoch
// run: nothing: reported before data moves
// cause: each rank decides by its own numbers when to stop
// fix: broadcast rank 0's decision, or all-reduce it
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
