#include "protocol/process_copy.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace lockstep {

pid_t* thread_number_address() {
  pid_t* place = nullptr;
  return ::prctl(PR_GET_TID_ADDRESS, &place, 0, 0, 0) == 0 ? place : nullptr;
}

// fork() can't choose the parent. Of what else fork() does in the copy, a process with one thread needs two things: its
// number, and the list of mutexes that the kernel releases at its end. Handlers of pthread_atfork() are for several threads.
pid_t start_copy(pid_t parent) {
  pid_t* const number = thread_number_address();
  void* mutexes = nullptr;
  size_t size = 0;
  ::syscall(SYS_get_robust_list, 0, &mutexes, &size);
  const unsigned long flags = SIGCHLD | (::getpid() == parent ? 0 : CLONE_PARENT);
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone, flags, nullptr, nullptr, nullptr, nullptr));
  if (pid != 0) return pid;
  if (number) *number = static_cast<pid_t>(::syscall(SYS_set_tid_address, number));
  if (mutexes) ::syscall(SYS_set_robust_list, mutexes, size);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it ended before the line above
  return 0;
}

}  // namespace lockstep
