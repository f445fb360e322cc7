#include "worker/process/endable_call.h"

#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>

#include "worker/process/interrupt.h"

namespace lockstep::worker {
namespace {

constexpr int kEndSignal = SIGWINCH;  // ignored by default, and sent to the process group of a terminal only

enum : int { kNoCall, kCall, kEndedCall, kWait };
std::atomic<int> g_call{kNoCall};  // of the run thread
pid_t g_run_thread = 0;
constexpr int64_t kSecond = 1'000'000'000;

// The kernel reads it when a wait begins, and a wait that a signal has interrupted begins again.
timespec g_limit{};

void set_limit(time_t seconds, long nanoseconds) {
  __atomic_store_n(&g_limit.tv_sec, seconds, __ATOMIC_SEQ_CST);
  __atomic_store_n(&g_limit.tv_nsec, nanoseconds, __ATOMIC_SEQ_CST);
}

bool is_system_call(uintptr_t address) {
  constexpr uint8_t kSyscall[2] = {0x0f, 0x05};
  return std::memcmp(reinterpret_cast<const void*>(address), kSyscall, sizeof kSyscall) == 0;
}

/// Lets the system call at hand fail with EINTR: the kernel has ended it so, or will make it again, or it has not begun.
void end_own_call(int, siginfo_t*, void* ucontext) {
  if (g_call != kCall) return;
  auto& registers = static_cast<ucontext_t*>(ucontext)->uc_mcontext.gregs;
  const auto ip = static_cast<uintptr_t>(registers[REG_RIP]);
  if (is_system_call(ip)) {
    registers[REG_RIP] += 2;
    registers[REG_RAX] = -EINTR;
  } else if (registers[REG_RAX] != -EINTR || !is_system_call(ip - 2)) {
    return;
  }
  g_call = kEndedCall;
}

}  // namespace

void prepare_endable_calls() {
  g_run_thread = ::gettid();
  struct sigaction action = {};
  action.sa_sigaction = end_own_call;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  ::sigaction(kEndSignal, &action, nullptr);
}

void end_call() {
  if (g_call == kNoCall) return;
  if (g_call == kWait) set_limit(0, 0);
  ::syscall(SYS_tgkill, ::getpid(), g_run_thread, kEndSignal);
}

bool is_call_to_end() { return stop_requests().pending() == StopReason::interrupt; }

EndableCall::EndableCall() : before_(g_call.exchange(kCall)) {}
EndableCall::~EndableCall() { g_call = before_; }
bool EndableCall::was_ended() const { return g_call == kEndedCall; }

EndableWait::EndableWait(const timespec* end) : before_(kNoCall), limit_before_(g_limit) {
  if (end)
    set_limit(end->tv_sec, end->tv_nsec);
  else
    set_limit(std::numeric_limits<int64_t>::max() / kSecond, 0);  // as far as the kernel counts, on any clock
  before_ = g_call.exchange(kWait);
  if (is_call_to_end()) set_limit(0, 0);  // the request may have come before it saw the wait
}

EndableWait::~EndableWait() {
  g_call = before_;
  set_limit(limit_before_.tv_sec, limit_before_.tv_nsec);
}

const timespec* EndableWait::limit() const { return &g_limit; }

}  // namespace lockstep::worker
