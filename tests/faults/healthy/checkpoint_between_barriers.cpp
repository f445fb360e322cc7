// Rank 0 writes a checkpoint while the others wait in a barrier.
// ranks: 3

// %% save
#include <thread>
dist::barrier();
if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
dist::barrier();
