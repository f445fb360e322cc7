// One rank has a batch more than the other.
// symptom: a hang in the last step of the first epoch
// run: nothing: reported within a second; before training `%data indices --batch-size N`
// cause: shares of the data with different lengths
// fix: drop the last batch, pad, or train under `net.join(…)`
// thread: pytorch/pytorch#33148
// ranks: 2
// exit: 4
// expect: hang:hang kind=finished ranks=1 reference=0 op=all_reduce

// %% an epoch
set_seed(1);
auto net = ddp::DistributedDataParallel(torch::nn::Linear(4, 2));
const int batches = rank == 0 ? 4 : 3;
for (int i = 0; i < batches; ++i) net(torch::ones({2, 4})).sum().backward();
