// A group that only its members create: the next `new_group` of all ranks is another call for each.
// symptom: a hang in a later `new_group`, or groups that are mixed up
// run: nothing: reported before anything is connected
// cause: all ranks have to call `new_group`, also those that are not in the group
// fix: call it on every rank, in one order
// thread: pytorch/pytorch#134314
// ranks: 3
// expect: collectives:shape_mismatch ranks=2 reference=0-1 op=new_group

// %% groups
dist::Group pair;
if (rank != 2) pair = dist::new_group({0, 1});
auto everyone = dist::new_group({0, 1, 2});
auto t = torch::ones({4});
dist::all_reduce(t, dist::ReduceOp::SUM, everyone);
