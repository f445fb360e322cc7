// A check that stands behind `if (rank == 0)`: the other rank never comes.
// symptom: the check itself blocks
// run: nothing: the call ends after its deadline and names the missing ranks
// cause: a collective call in a branch that only one rank takes
// fix: call it on every rank
// ranks: 2
// expect: verify:missing kind=call ranks=1 reference=0

// %% on rank 0 only
set_seed(1);
torch::nn::Linear net(4, 2);
if (rank == 0) inspect::verify(net, inspect::VerifyOptions().deadline(std::chrono::milliseconds(500)));
