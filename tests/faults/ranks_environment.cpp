// NCCL's algorithm is set on one node only.
// symptom: a hang or an error in the first collective
// run: `%ranks`
// cause: a variable in one node's profile
// fix: set it for all ranks in the launcher
// thread: NVIDIA/nccl#1136
// ranks: 3
// expect: ranks:mismatch kind=environment ranks=1 reference=0,2

// %% a profile of its own
if (rank == 1) setenv("NCCL_ALGO", "Ring", 1);
%ranks
