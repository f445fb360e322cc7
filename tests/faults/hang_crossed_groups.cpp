// Two groups of the same ranks, used in another order on each.
// symptom: a hang with every rank in a collective
// run: nothing: the circular wait is reported
// cause: tensor- and data-parallel groups whose reductions are issued in an order that depends on the rank
// fix: the same order on all ranks
// thread: meta-pytorch/torchrec#4149
// ranks: 2
// exit: 4
// expect: hang:hang kind=other_collective ranks=0-1

// %% two groups
auto data_parallel = dist::new_group({0, 1});
auto tensor_parallel = dist::new_group({0, 1});
auto t = torch::ones({4});
if (rank == 0) {
  dist::all_reduce(t, dist::ReduceOp::SUM, data_parallel);
  dist::all_reduce(t, dist::ReduceOp::SUM, tensor_parallel);
} else {
  dist::all_reduce(t, dist::ReduceOp::SUM, tensor_parallel);
  dist::all_reduce(t, dist::ReduceOp::SUM, data_parallel);
}
