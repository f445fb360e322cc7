// Puts the worker's system() in front of the C library's, which waits where no exception can leave it: an interrupt ends
// the command with its processes, and then the cell.
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "protocol/next_function.h"
#include "worker/process/interrupt.h"

namespace {

/// Ends a process with all that it has started and that still belongs to it.
void end_with_children(pid_t process) {
  ::kill(process, SIGSTOP);  // starts no more
  const std::string name = std::to_string(process);
  std::ifstream children("/proc/" + name + "/task/" + name + "/children");
  for (pid_t child; children >> child;) end_with_children(child);
  ::kill(process, SIGKILL);
}

/// Lets signals be as POSIX wants them while a command runs.
class Signals {
 public:
  Signals() {
    struct sigaction ignored = {};
    ignored.sa_handler = SIG_IGN;
    ::sigaction(SIGINT, &ignored, &interrupt_);
    ::sigaction(SIGQUIT, &ignored, &quit_);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    ::pthread_sigmask(SIG_BLOCK, &child, &mask_);
  }
  ~Signals() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGQUIT, &quit_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  /// Starts `command` with the signals as they were. Returns 0 or an error's number.
  int start(const char* command, pid_t& process) const {
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t standard;
    sigemptyset(&standard);
    if (interrupt_.sa_handler != SIG_IGN) sigaddset(&standard, SIGINT);
    if (quit_.sa_handler != SIG_IGN) sigaddset(&standard, SIGQUIT);
    posix_spawnattr_setsigdefault(&attributes, &standard);
    posix_spawnattr_setsigmask(&attributes, &mask_);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    const char* const arguments[] = {"sh", "-c", command, nullptr};
    const int problem =
        ::posix_spawn(&process, "/bin/sh", nullptr, &attributes, const_cast<char* const*>(arguments), environ);
    posix_spawnattr_destroy(&attributes);
    return problem;
  }

 private:
  struct sigaction interrupt_ = {}, quit_ = {};
  sigset_t mask_;
};

/// A command that is ended when an exception leaves the wait for it.
struct Running {
  pid_t process = 0;
  bool over = false;
  ~Running() {
    if (over) return;
    end_with_children(process);
    ::waitpid(process, nullptr, 0);
  }
};

}  // namespace

extern "C" int system(const char* command) {
  auto* const real = lockstep::next_function<"system", int(const char*)>();
  if (!command || !lockstep::worker::on_run_thread()) return real(command);
  const Signals signals;
  pid_t process = 0;
  constexpr int kNoShell = 127 << 8;  // as if it had ended with exit(127)
  if (signals.start(command, process) != 0) return kNoShell;
  Running running{process};
  int status = -1;
  while (::waitpid(process, &status, 0) < 0) {  // an interrupt ends it with an exception
    if (errno == EINTR) continue;
    status = -1;
    break;
  }
  running.over = true;
  return status;
}
