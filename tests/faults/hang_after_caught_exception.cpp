// A rank catches an exception and goes on with the next step: from there on its all_reduce meets that of another step.
// symptom: a hang at the end of training, after steps that averaged different batches
// run: nothing: the exception is reported with the hang
// cause: `catch (...) {}` around a step with its collectives
// fix: run the collectives of the step in any case (with zeros), or skip the step on all ranks
// thread: pytorch/pytorch#44353
// ranks: 2
// exit: 4
// expect: hang:hang kind=finished ranks=1 reference=0 op=all_reduce

// %% training
auto gradient = torch::ones({8});
for (int step = 0; step < 6; ++step) {
  try {
    if (rank == 1 && step == 2) throw std::runtime_error("a broken image");
    dist::all_reduce(gradient);
  } catch (const std::exception&) {
  }
}
