// A rank throws in the middle of a step; the others wait for it in all_reduce.
// symptom: a hang, with an error much earlier in one rank's log
// run: nothing: the rank that threw is reported as the cause
// cause: an exception on one rank (out of memory, a broken sample)
// fix: fix the exception; if batches may be skipped, let all ranks decide together
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
