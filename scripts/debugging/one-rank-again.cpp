// %% [markdown]
// # One rank again, alone
// A fault that comes once in a while, on one rank of many, is hard to look at: it needs all ranks, and hours. Ranks that are recorded keep what
// they have received in their last steps, so that one of them can run these steps again without the others, with the same bits.
//
//     lockstep run scripts/debugging/one-rank-again.cpp -n 3 --record 4 --recording session.recording
//     lockstep replay session.recording --rank 2
//
// The replay runs the cells of rank 2. It compares each collective with the recorded one, and ends with how far it was the recorded run.

// %% a model on all ranks
set_seed(0);
torch::nn::Sequential net(torch::nn::Linear(20, 64), torch::nn::ReLU(), torch::nn::Dropout(0.1), torch::nn::Linear(64, 4));
auto model = ddp::DistributedDataParallel(net);
torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));

// %% [markdown]
// ## The fault
// Each rank has data and dropout of its own. In step 13 the last one meets a label that the model has no output for. The others wait for it, and are
// freed.

// %% training tags=["raises-exception", "expects-finding"]
set_seed(rank);
for (int number = 0; number < 20; ++number)
  if (auto step = ddp::step(model, optimizer)) {
    auto x = torch::randn({16, 20});
    auto labels = x.narrow(1, 0, 4).argmax(1);
    if (number == 13 && rank == world_size - 1) labels[3] = 4;
    optimizer.zero_grad();
    torch::cross_entropy_loss(model(x), labels).backward();
    optimizer.step();
  }
