// A group that only its members create.
// symptom: `new_group` never returns
// ask: nothing: it is told within a second
// cause: `new_group` is for all ranks, also those that will not be in the group
// mend: call it on every rank, in one order
// thread: pytorch/pytorch#134314
// ranks: 3
// exit: 4
// expect: hang:hang kind=finished ranks=2 reference=0-1

// %% a group of two
dist::Group pair;
if (rank != 2) pair = dist::new_group({0, 1});
