// A step that is written where it is timed: one expression, blanks and all.
// alone: who is slow is not to be decided by what ran before
// ranks: 2
// ok: time_sync

// %% a step
#include <thread>
set_seed(1);
auto net = ddp::DistributedDataParallel(torch::nn::Linear(8, 4));
torch::optim::SGD optimizer(net.parameters(), 0.1);
%time_sync [&] { std::this_thread::sleep_for(std::chrono::milliseconds(40)); optimizer.zero_grad(); net(torch::ones({4, 8})).sum().backward(); optimizer.step(); } net optimizer --steps 5
