// A group that only its members create: the next `new_group` of all ranks is another call for each.
// symptom: a hang in a later `new_group`, or groups that are mixed up
// ask: nothing: it is told before anything is connected
// cause: `new_group` is for all ranks, also for those that will not be in the group
// mend: call it on every rank, in one order
// thread: pytorch/pytorch#134314
// ranks: 3
// expect: collectives:shape_mismatch ranks=2 reference=0-1 op=new_group

// %% groups
dist::Group pair;
if (rank != 2) pair = dist::new_group({0, 1});
auto everyone = dist::new_group({0, 1, 2});
auto t = torch::ones({4});
dist::all_reduce(t, dist::ReduceOp::SUM, everyone);
