// Says what the kernel knows of a thread without touching it: whether it runs, and for how long it has not.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::shell {

struct ThreadState {
  char state =
      '?';  // as ps has it: R runs, S sleeps, D is blocked in the kernel, T is stopped, t is traced, Z has ended
  uint64_t switches = 0;  // how often it has left its processor
  uint64_t run_ns = 0;  // how long it has run; 0 where the kernel does not count it
  int processor = -1;  // that it ran on last

  bool is_running() const { return state == 'R'; }
  bool is_stopped() const { return state == 'T' || state == 't'; }
  /// Whether it has run between the two.
  bool has_run_since(const ThreadState& before) const {
    return is_running() || switches != before.switches || run_ns != before.run_ns;
  }
};

/// Returns nothing where there is no such thread.
std::optional<ThreadState> thread_state(int64_t pid, int64_t thread);

/// Returns for how many seconds a thread that does not run has not, at least. Nothing where the kernel does not say it
/// (it has no /proc/PID/sched), or the thread's processor can't be used by this process. The calling thread goes to
/// that processor: only there the two clocks are one.
std::optional<double> seconds_since_it_ran(int64_t pid, int64_t thread, int processor);

/// Returns where in the kernel it waits: "nfs_wait_bit_killable"; empty where that is not known.
std::string kernel_function(int64_t pid, int64_t thread);

}  // namespace lockstep::shell
