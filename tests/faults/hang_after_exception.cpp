// A rank throws in the middle of a step; the others wait for it in all_reduce.
// symptom: a hang, and the error stands far above in one rank's log
// ask: nothing: the rank that threw is named as the cause
// cause: an exception on one rank (out of memory, a broken sample)
// mend: mend what threw; where batches may be skipped, agree on it on all ranks
// thread: pytorch/pytorch#44353
// ranks: 2
// exit: 1
// expect: hang:hang kind=threw ranks=1 reference=0 op=all_reduce

// %% a step
auto gradient = torch::ones({8});
for (int step = 0; step < 3; ++step) {
  if (rank == 1 && step == 2) throw std::runtime_error("out of memory");
  dist::all_reduce(gradient);
}
