// Signals that a thread leaves to others for a while.
#pragma once
#include <csignal>

namespace lockstep {

/// No signal is handled on this thread while it lives, and a thread or process that is started meanwhile begins like that.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { restore(); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  /// Ends it earlier. Async-signal-safe.
  void restore() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace lockstep
