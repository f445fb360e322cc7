#include "worker/process/held_call.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

#include <cerrno>
#include <fstream>
#include <string>

namespace lockstep::worker {
namespace {

const auto& registers_of(const void* ucontext) { return static_cast<const ucontext_t*>(ucontext)->uc_mcontext.gregs; }

/// Returns the result as the kernel gives it: an error is its negative number.
long system_call(long number, const std::array<uintptr_t, 6>& arguments) {
  register uintptr_t fourth asm("r10") = arguments[3];
  register uintptr_t fifth asm("r8") = arguments[4];
  register uintptr_t sixth asm("r9") = arguments[5];
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(fourth), "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  return result;
}

/// Whether the kernel has kept the time at which the call ends, for restart_syscall.
bool has_kept_end(const HeldCall& call) {
  const bool absolute = (call.arguments[1] & TIMER_ABSTIME) != 0;
  return call.number == SYS_poll || call.number == SYS_futex || call.number == SYS_nanosleep ||
         (call.number == SYS_clock_nanosleep && !absolute);
}

/// Whether a handler of the program is to run as soon as signals are as they were before the handler.
bool is_another_due(const sigset_t& blocked) {
  sigset_t pending;
  sigpending(&pending);
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action;
    if (sigismember(&pending, number) != 1 || sigismember(&blocked, number) == 1) continue;
    if (::sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL)
      return true;
  }
  return false;
}

}  // namespace

struct sigaction looking_action(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (const int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) sigdelset(&action.sa_mask, fatal);
  return action;
}

HeldCall held_call(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/syscall");
  HeldCall call;
  long number = -1;
  file >> number >> std::hex;
  for (uintptr_t& argument : call.arguments) file >> argument;
  if (file >> call.stack_pointer >> call.instruction) call.number = number;
  return call;
}

bool is_interrupted(const HeldCall& call, const void* ucontext) {
  const auto& registers = registers_of(ucontext);
  const auto has = [&](int number, uintptr_t value) { return static_cast<uintptr_t>(registers[number]) == value; };
  // A descriptor whose close() was interrupted is closed.
  return call.number >= 0 && call.number != SYS_close && registers[REG_RAX] == -EINTR &&
         has(REG_RIP, call.instruction) && has(REG_RSP, call.stack_pointer) && has(REG_RDI, call.arguments[0]) &&
         has(REG_RSI, call.arguments[1]) && has(REG_RDX, call.arguments[2]) && has(REG_R10, call.arguments[3]) &&
         has(REG_R8, call.arguments[4]) && has(REG_R9, call.arguments[5]);
}

void go_on_with(const HeldCall& call, void* ucontext) {
  auto& context = *static_cast<ucontext_t*>(ucontext);
  sigset_t mask = context.uc_sigmask;
  if (is_another_due(mask)) return;  // it interrupts the call
  sigaddset(&mask, SIGURG);  // the call is not disturbed again
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  // The kernel writes the time that is left into the arguments of select, pselect and ppoll.
  const long number = has_kept_end(call) ? SYS_restart_syscall : call.number;
  context.uc_mcontext.gregs[REG_RAX] = system_call(number, call.arguments);
}

}  // namespace lockstep::worker
