// Steps of one second each, under a limit of two.
// alone: who is slow is not to be decided by what ran before
// ranks: 2
// options: --hang-timeout 2

// %% train
#include <thread>
auto t = torch::ones({4});
for (int step = 0; step < 4; ++step) {
  if (rank == step % 2) std::this_thread::sleep_for(std::chrono::seconds(1));
  dist::all_reduce(t, dist::ReduceOp::AVG);
}
