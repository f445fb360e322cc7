// The kernel's out-of-memory killer ends a rank.
// symptom: "connection closed by peer", or a hang of all others
// ask: nothing: the death is told with what the others wait in
// cause: SIGKILL from outside
// mend: less memory on the host: fewer loader threads, smaller caches
// ranks: 2
// exit: 5
// expect: hang:dead kind=died ranks=1 reference=0 op=all_reduce

// %% a step
#include <csignal>
auto gradient = torch::ones({8});
dist::all_reduce(gradient);
if (rank == 1) raise(SIGKILL);
dist::all_reduce(gradient);
