// Ranks that take equally long, of which each waits a little for the other.
// alone: who is slow is not to be decided by what ran before
// ranks: 2
// ok: time_sync

// %% a step
#include <thread>
set_seed(1);
auto net = ddp::DistributedDataParallel(torch::nn::Linear(8, 4));
torch::optim::SGD optimizer(net.parameters(), 0.1);
auto step = [&] {
  optimizer.zero_grad();
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  net(torch::ones({4, 8})).sum().backward();
  optimizer.step();
};
%time_sync step net optimizer --steps 5
