// The kernel's out-of-memory killer ends a rank.
// symptom: "connection closed by peer", or a hang of all others
// run: nothing: the death is reported with the collective of the others
// cause: SIGKILL from outside
// fix: less memory on the host: fewer loader threads, smaller caches
// ranks: 2
// exit: 5
// expect: hang:dead kind=died ranks=1 reference=0 op=all_reduce

// %% a step
#include <csignal>
auto gradient = torch::ones({8});
dist::all_reduce(gradient);
if (rank == 1) raise(SIGKILL);
dist::all_reduce(gradient);
