// A group for one step, which each rank closes as soon as it is done with it, be the others so far or not.
// ranks: 3

// %% a group per step
#include <thread>
for (int step = 0; step < 8; ++step) {
  auto group = dist::new_group();
  auto t = torch::ones({1000});
  dist::all_reduce(t, dist::ReduceOp::SUM, group);
  if (step % 3 == rank) std::this_thread::sleep_for(std::chrono::milliseconds(120));
  dist::destroy_process_group(group);
}
dist::barrier();
