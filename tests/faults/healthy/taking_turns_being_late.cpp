// Both ranks are late, in turn: no straggler.
// alone: who is slow is not to be decided by what ran before
// ranks: 2

// %% train
#include <thread>
auto t = torch::ones({4});
for (int step = 0; step < 24; ++step) {
  if (rank == step % 2) std::this_thread::sleep_for(std::chrono::milliseconds(120));
  dist::all_reduce(t, dist::ReduceOp::AVG);
}
