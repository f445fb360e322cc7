// A rank that is seconds late for the check.
// ranks: 2
// ok: verify

// %% late
#include <thread>
set_seed(1);
torch::nn::Linear net(4, 2);
if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
%verify net
