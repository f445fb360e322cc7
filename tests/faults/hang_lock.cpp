// A rank that waits for a lock that its own thread holds.
// symptom: training stands still, without load
// run: `--hang-timeout S`; `%stack 1` at once
// cause: a logger's lock is taken again by a function that is called while it is held
// fix: release it before the call
// ranks: 2
// options: --hang-timeout 1
// exit: 4
// expect: hang:hang kind=lock ranks=1 reference=0 op=barrier

// %% log under a lock
#include <mutex>
std::mutex log_mutex;
std::unique_lock<std::mutex> writing(log_mutex);
if (rank == 1) log_mutex.lock();
dist::barrier();
