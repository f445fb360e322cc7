// A search for a good sample that never ends, on one rank.
// symptom: one GPU idles, all others are busy waiting
// run: `--hang-timeout S`; `%hang` and `%stack` at once
// cause: `while (!good(sample))` with data that has no such sample
// fix: a limit for attempts
// ranks: 2
// options: --hang-timeout 1
// exit: 4
// expect: hang:hang kind=computing ranks=1 reference=0 op=all_reduce

// %% rejection sampling
auto batch = torch::ones({4});
volatile int sample = 0;
while (rank == 1 && sample >= 0) sample = (sample + 1) % 1000;
dist::all_reduce(batch);
