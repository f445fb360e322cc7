// One rank is always late, in a cell of only 26 steps.
// symptom: all ranks are slow, and each of them seems to wait for the network
// run: nothing: it is a note at the end of the cell; `%time_sync step net optimizer` measures it
// cause: a slower device, more to load, another program on its machine
// fix: check the rank in the message
// thread: ultralytics/ultralytics#8566
// ranks: 2
// severity: note
// exit: 0
// expect: hang:straggler ranks=1 reference=0 op=all_reduce

// %% train
#include <thread>
auto gradient = torch::ones({8});
for (int step = 0; step < 26; ++step) {
  std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 150 : 10));
  dist::all_reduce(gradient);
}
