// Slurm sends SIGTERM, and the signal of its option --signal, to all processes of a step at once. The shell and the relays
// of a session answer them by ending the session in order, for which its other processes have to be there.
#pragma once
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace lockstep::protocol {

/// The signals by which a session is asked to end, with time to save what its ranks hold.
inline constexpr int kPreemptionSignals[] = {SIGTERM, SIGUSR1, SIGUSR2};

inline bool is_in_slurm_job() {
  const char* job = std::getenv("SLURM_JOB_ID");
  return job && *job;
}

/// Within a job of Slurm, this process outlives these signals from here on. Programs that it starts, and copies of it,
/// don't: a handler is no property of theirs, as an ignored signal would be.
inline void outlive_slurm_signals() {
  if (!is_in_slurm_job()) return;
  static pid_t owner;
  owner = ::getpid();
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  action.sa_handler = [](int signal) {
    if (::getpid() == owner) return;
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  };
  for (const int signal : kPreemptionSignals) ::sigaction(signal, &action, nullptr);
}

}  // namespace lockstep::protocol
