// A rank that retries a download with longer and longer pauses.
// symptom: training stands still, without load
// run: `--hang-timeout S`; `%hang` at once
// cause: a retry loop that sleeps, on a rank without network
// fix: a limit for retries, and an error that ends all ranks
// ranks: 2
// options: --hang-timeout 1
// exit: 4
// expect: hang:hang kind=sleeping ranks=1 reference=0 op=all_reduce

// %% download
#include <thread>
auto weights = torch::ones({4});
for (int tries = 1; rank == 1; ++tries) std::this_thread::sleep_for(std::chrono::seconds(60 * tries));
dist::all_reduce(weights);
