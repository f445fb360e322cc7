// Sub-groups that make unequal numbers of collectives.
// ranks: 3

// %% groups
auto pair = dist::new_group({0, 2});
auto single = dist::new_group({1});
auto t = torch::ones({4});
for (int i = 0; i < 5 && rank != 1; ++i) dist::all_reduce(t, dist::ReduceOp::AVG, pair);
if (rank == 1) dist::all_reduce(t, dist::ReduceOp::AVG, single);
dist::barrier();
