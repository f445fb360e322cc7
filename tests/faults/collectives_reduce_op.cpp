// Rank 0 averages, the others sum.
// symptom: a metric that is wrong by a factor of the number of ranks, on some ranks
// run: nothing: reported before data moves
// cause: two versions of a helper function
// fix: the same call on all ranks
// ranks: 3
// expect: collectives:op_mismatch ranks=0 reference=1-2 op=all_reduce

// %% a metric
auto accuracy = torch::ones({1});
if (rank == 0)
  dist::all_reduce(accuracy, dist::ReduceOp::AVG);
else
  dist::all_reduce(accuracy);
