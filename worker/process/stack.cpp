#include "worker/process/stack.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "protocol/descriptor.h"
#include "worker/process/held_call.h"

namespace lockstep::worker {
namespace {

struct FrameWalk {
  Stack* stack;
  int skip;
};

_Unwind_Reason_Code visit_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<FrameWalk*>(argument);
  int before = 0;
  const uintptr_t ip = _Unwind_GetIPInfo(context, &before);
  if (ip == 0) return _URC_END_OF_STACK;
  if (walk.skip > 0) {
    --walk.skip;
    return _URC_NO_REASON;
  }
  walk.stack->pc[walk.stack->size++] = before ? ip : ip - 1;
  return walk.stack->size < Stack::kMax ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/// Reads memory that may not be there.
bool peek(uintptr_t address, uintptr_t* words, size_t count) {
  iovec local{words, count * sizeof(uintptr_t)}, remote{reinterpret_cast<void*>(address), count * sizeof(uintptr_t)};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(count * sizeof(uintptr_t));
}

/// An object may have memory that can't be read (worker/loader/stand_in.h).
bool in_loaded_code(uintptr_t address) {
  dl_find_object found;
  uintptr_t word = 0;
  return address != 0 && _dl_find_object(reinterpret_cast<void*>(address), &found) == 0 &&
         peek(address - address % sizeof word, &word, 1);
}

constexpr int kProbeSignal = SIGURG;  // ignored by default, so nobody is hurt where it comes late

std::atomic<pid_t> g_watched{0};
std::atomic<int> g_event_fd{-1};
std::atomic<int> g_requested{0}, g_taken{0}, g_interruptions{0};
Stack g_stack;
HeldCall g_held;                     // before the signal; written while no request is under way
std::atomic<bool> g_goes_on{false};  // the thread is still in the call that the last signal has interrupted

void answer(int request) {
  g_taken.store(request, std::memory_order_release);
  set_event(g_event_fd);
}

void take_own_stack(int, siginfo_t*, void* ucontext) {
  const int error = errno;
  g_interruptions.fetch_add(1);
  const int request = g_requested.load();
  if (request != g_taken.load()) {
    const HeldCall held = g_held;
    const bool goes_on = is_interrupted(held, ucontext);
    capture_interrupted_stack(g_stack, ucontext);
    g_goes_on = goes_on;
    answer(request);
    if (goes_on) go_on_with(held, ucontext);
    g_goes_on = false;
  }
  errno = error;
}

}  // namespace

void capture_stack(Stack& stack, int skip) {
  stack.size = 0;
  FrameWalk walk{&stack, skip + 1};
  _Unwind_Backtrace(visit_frame, &walk);
}

void capture_interrupted_stack(Stack& stack, void* ucontext) {
  const auto& registers = static_cast<ucontext_t*>(ucontext)->uc_mcontext.gregs;
  const auto ip = static_cast<uintptr_t>(registers[REG_RIP]);
  if (in_loaded_code(ip)) {
    Stack& all = stack;
    capture_stack(all, 0);
    // The handler's own frames and the signal trampoline come first.
    for (int i = 0; i < all.size; ++i) {
      if (all.pc[i] != ip) continue;
      std::memmove(all.pc, all.pc + i, static_cast<size_t>(all.size - i) * sizeof all.pc[0]);
      all.size -= i;
      return;
    }
  }
  stack.size = 0;
  stack.pc[stack.size++] = ip;
  uintptr_t words[2];
  if (peek(static_cast<uintptr_t>(registers[REG_RSP]), words, 1) && in_loaded_code(words[0]))
    stack.pc[stack.size++] = words[0] - 1;
  auto frame = static_cast<uintptr_t>(registers[REG_RBP]);
  while (stack.size < Stack::kMax && peek(frame, words, 2) && in_loaded_code(words[1])) {
    if (stack.pc[stack.size - 1] != words[1] - 1) stack.pc[stack.size++] = words[1] - 1;
    if (words[0] <= frame) break;
    frame = words[0];
  }
}

void warm_up_stacks() {
  Stack stack;
  capture_stack(stack);
}

void StackProbe::watch_this_thread() {
  g_watched.store(::gettid());
  const struct sigaction action = looking_action(take_own_stack);
  ::sigaction(kProbeSignal, &action, nullptr);
}

void StackProbe::request(int event_fd) {
  g_event_fd.store(event_fd);
  if (g_goes_on) return answer(++g_requested);  // it has not moved since: its stack is the last one
  if (g_taken.load(std::memory_order_acquire) == g_requested.load()) g_held = held_call(g_watched.load());
  g_requested.fetch_add(1);
  ::syscall(SYS_tgkill, ::getpid(), g_watched.load(), kProbeSignal);
}

bool StackProbe::taken(Stack& stack) {
  if (g_taken.load(std::memory_order_acquire) != g_requested.load()) return false;
  stack = g_stack;
  return true;
}

int StackProbe::interruptions() { return g_interruptions.load(); }

}  // namespace lockstep::worker
