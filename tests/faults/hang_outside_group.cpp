// Ranks that count themselves from 0 within their node use a group that they are not in.
// symptom: an error on one rank, a hang on another
// run: nothing: both are reported at once
// cause: local and global ranks are mixed up
// fix: `dist::get_process_group_ranks(group)` returns the ranks of the group
// thread: pytorch/pytorch#25390
// ranks: 3
// exit: 1
// expect: hang:hang kind=outside_group ranks=1-2 reference=0

// %% a group of two
auto pair = dist::new_group({0, 2});
auto t = torch::ones({4});
const bool in_group = rank < 2;
if (in_group) dist::all_reduce(t, dist::ReduceOp::SUM, pair);
