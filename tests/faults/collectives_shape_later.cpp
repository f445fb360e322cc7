// The last batch of an epoch is smaller everywhere; in the next epoch one rank's first batch is as small.
// symptom: garbage in the metrics, or a hang
// run: nothing: reported before data moves
// cause: a sampler that one rank restarts in the middle; different batch sizes
// fix: `drop_last`, or sizes that all ranks agree on
// ranks: 2
// expect: collectives:shape_mismatch ranks=0-1 op=all_reduce where=here

// %% two epochs
std::vector<int64_t> sizes{8, 3, rank == 1 ? 3 : 8, 3};
for (const int64_t size : sizes)
  dist::all_reduce(torch::ones({size}));  // <- here
