// One rank ends its groups while the others still reduce.
// symptom: a hang at the end of training
// run: nothing: reported within a second
// cause: `destroy_process_group` before the last collective of the others
// fix: a barrier before it
// ranks: 2
// exit: 4
// expect: hang:hang kind=left_group ranks=1 reference=0 op=all_reduce

// %% the end of training
auto side = dist::new_group({0, 1});
auto last = torch::ones({4});
dist::all_reduce(last, dist::ReduceOp::SUM, side);
if (rank == 1) dist::destroy_process_group(side);
else dist::all_reduce(last, dist::ReduceOp::SUM, side);
dist::barrier();
