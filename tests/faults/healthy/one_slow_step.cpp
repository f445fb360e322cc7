// A rank that is late once: no straggler.
// alone: who is slow is not to be decided by what ran before
// ranks: 2

// %% train
#include <thread>
auto t = torch::ones({4});
for (int step = 0; step < 30; ++step) {
  if (rank == 1 && step == 7) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  dist::all_reduce(t, dist::ReduceOp::AVG);
}
