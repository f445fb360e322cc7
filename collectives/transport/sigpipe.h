// Gloo writes to its sockets without MSG_NOSIGNAL: writing to a connection that was shut would end the process with
// SIGPIPE. While one of these exists, the calling thread and the threads that it starts get EPIPE instead. The signal's
// disposition belongs to the program, and is not changed.
#pragma once
#include <signal.h>

namespace lockstep::dist {

class SigpipeBlocked {
 public:
  SigpipeBlocked() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE);
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~SigpipeBlocked() {
    if (!was_pending_ && !sigismember(&before_, SIGPIPE)) {
      const timespec now{};
      sigtimedwait(&sigpipe_, nullptr, &now);  // the one that a write raised here
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeBlocked(const SigpipeBlocked&) = delete;
  SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;

 private:
  sigset_t sigpipe_, before_;
  bool was_pending_ = false;
};

}  // namespace lockstep::dist
