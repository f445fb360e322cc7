// A rank catches an exception and goes on with the next step: from there on its all_reduce meets that of another step.
// symptom: a hang at the end of training, after steps whose averages mixed up different batches
// ask: nothing: the exception is told with the hang
// cause: `catch (...) {}` around a step with its collectives
// mend: make the step's collectives all the same (with zeros), or skip the step on all ranks
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
