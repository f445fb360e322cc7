// One rank's forward takes longer.
// symptom: adding ranks does not help
// run: `%time_sync step net optimizer`
// cause: a slower device, or more to do on one rank
// fix: check the rank in the message
// ranks: 2
// severity: note
// exit: 0
// expect: time_sync:straggler ranks=1

// %% a step
#include <thread>
set_seed(1);
auto net = ddp::DistributedDataParallel(torch::nn::Linear(8, 4));
torch::optim::SGD optimizer(net.parameters(), 0.1);
auto step = [&] {
  optimizer.zero_grad();
  if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(40));
  net(torch::ones({4, 8})).sum().backward();
  optimizer.step();
};
%time_sync step net optimizer --steps 5
