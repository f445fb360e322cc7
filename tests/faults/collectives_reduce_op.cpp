// Rank 0 averages, the others sum.
// symptom: a metric that is wrong by the number of ranks on some
// ask: nothing: it is told before data moves
// cause: two versions of one helper
// mend: one call for all ranks
// ranks: 3
// expect: collectives:op_mismatch ranks=0 reference=1-2 op=all_reduce

// %% a metric
auto accuracy = torch::ones({1});
if (rank == 0)
  dist::all_reduce(accuracy, dist::ReduceOp::AVG);
else
  dist::all_reduce(accuracy);
