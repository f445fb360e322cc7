// Two stages of a pipeline that both receive first.
// symptom: the first micro-batch never arrives
// run: nothing: the circular wait is reported
// cause: `recv` before `send` on both sides
// fix: one side sends first, or `irecv` and `isend`
// thread: NVIDIA/nccl#479
// ranks: 2
// exit: 4
// expect: hang:hang kind=other_collective ranks=0-1

// %% exchange
auto activation = torch::ones({4});
dist::recv(activation, 1 - rank);
dist::send(activation, 1 - rank);
