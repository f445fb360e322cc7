// A check that stands behind `if (rank == 0)`: the other rank never comes.
// symptom: the check itself waits
// ask: nothing: the call ends after its deadline, and says who is missing
// cause: a call for all ranks in a branch that one rank takes
// mend: call it on every rank
// ranks: 2
// expect: verify:missing kind=call ranks=1 reference=0

// %% on rank 0 only
set_seed(1);
torch::nn::Linear net(4, 2);
if (rank == 0) inspect::verify(net, inspect::VerifyOptions().deadline(std::chrono::milliseconds(500)));
