#include "worker/interpose/crash.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cxxabi.h>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "protocol/descriptor.h"
#include "protocol/signal_name.h"
#include "worker/interpose/exits.h"
#include "worker/process/demangle.h"
#include "worker/process/interrupt.h"

namespace lockstep::worker {
namespace {

constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
constexpr size_t kHandlerStack = 256 * 1024;
constexpr timespec kPatience = {2, 0};

enum : uint32_t { kNone, kWriting, kPending, kReported };

DeathReport g_report;
std::atomic<uint32_t> g_state{kNone};
std::atomic<bool> g_expected{false};
std::atomic<pid_t> g_reporter{0};
int g_event_fd = -1;
pid_t g_process = 0;
thread_local sigjmp_buf t_unwinding_failed;
thread_local volatile sig_atomic_t t_unwinding = 0;
char g_abort_message[sizeof(DeathReport::message)] = {};

void wait_until_reported() {
  while (g_state.load() == kPending) {
    const long result = ::syscall(SYS_futex, &g_state, FUTEX_WAIT_PRIVATE, kPending, &kPatience, nullptr, 0);
    if (result != 0 && errno == ETIMEDOUT) return;
  }
}

/// Hands the report over and waits until it has been sent. One report per process: who comes second ends at once.
void hand_over() {
  g_state.store(kPending);
  set_event(g_event_fd);
  wait_until_reported();
}

bool begin_report() {
  uint32_t none = kNone;
  if (!g_state.compare_exchange_strong(none, kWriting)) {
    // Another thread is dying: let it finish.
    if (g_reporter.load() != ::gettid()) wait_until_reported();
    return false;
  }
  g_reporter = ::gettid();
  return true;
}

void die_of(int signal) {
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  ::sigaction(signal, &by_default, nullptr);
  ::syscall(SYS_tgkill, ::getpid(), ::gettid(), signal);
}

/// The main thread's stack ends within a few pages of the address that was missed.
bool is_stack_overflow(uintptr_t address, const ucontext_t* context) {
  const auto stack_pointer = static_cast<uintptr_t>(context->uc_mcontext.gregs[REG_RSP]);
  constexpr uintptr_t kNear = 64 * 1024;
  return address + kNear > stack_pointer && address < stack_pointer + kNear;
}

void on_fatal_signal(int signal, siginfo_t* info, void* ucontext) {
  if (t_unwinding) siglongjmp(t_unwinding_failed, 1);  // the stack is damaged: report what was found
  if (::getpid() == g_process && !g_expected.load() && begin_report()) {
    auto& report = g_report;
    report.signal = signal;
    report.code = info->si_code;
    const bool memory = signal == SIGSEGV || signal == SIGBUS;
    report.address = memory ? reinterpret_cast<uintptr_t>(info->si_addr) : 0;
    report.stack_overflow = signal == SIGSEGV && info->si_code == SEGV_MAPERR &&
                            is_stack_overflow(report.address, static_cast<ucontext_t*>(ucontext));
    if (signal == SIGABRT) std::memcpy(report.message, g_abort_message, sizeof report.message);
    t_unwinding = 1;
    if (sigsetjmp(t_unwinding_failed, 1) == 0) capture_interrupted_stack(report.stack, ucontext);
    t_unwinding = 0;
    hand_over();
  }
  die_of(signal);
}

/// Remembers what std::terminate was called for; the default handler would print it and abort, too.
[[noreturn]] void on_terminate() {
  char* const to = g_abort_message;
  const size_t room = sizeof g_abort_message;
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type) {
    const std::string name = demangle(*type);
    std::snprintf(to, room, "an exception left a function or thread that lets none out: %s", name.c_str());
    try {
      throw;
    } catch (const std::exception& error) {
      std::snprintf(to, room, "an exception left a function or thread that lets none out: %s: %s", name.c_str(),
                    error.what());
    } catch (...) {  // has no text
    }
  } else {
    std::snprintf(to, room, "std::terminate was called");
  }
  std::abort();
}

}  // namespace

void install_crash_handlers(int event_fd) {
  g_event_fd = event_fd;
  g_process = ::getpid();
  stack_t stack = {};
  stack.ss_size = kHandlerStack;
  stack.ss_sp = ::mmap(nullptr, kHandlerStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack.ss_sp != MAP_FAILED) ::sigaltstack(&stack, nullptr);
  for (const int signal : kFatalSignals) {
    struct sigaction action = {};
    action.sa_sigaction = on_fatal_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigaction(signal, &action, nullptr);
  }
  std::set_terminate(on_terminate);
}

const DeathReport* take_death_report() { return g_state.load() == kPending ? &g_report : nullptr; }

void set_abort_message(const char* text) { std::snprintf(g_abort_message, sizeof g_abort_message, "%s", text); }

void death_reported() {
  g_state.store(kReported);
  ::syscall(SYS_futex, &g_state, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

void expect_exit() { g_expected = true; }

void report_exit(const char* function, int code) {
  if (::getpid() != g_process || g_expected.exchange(true) || !begin_report()) return;
  auto& report = g_report;
  report.code = code;
  std::snprintf(report.how, sizeof report.how, "%s", function);
  capture_stack(report.stack, 2);
  hand_over();
}

std::string describe(const DeathReport& report) {
  if (report.signal == 0) return "called " + std::string(report.how) + "(" + std::to_string(report.code) + ")";
  if (report.stack_overflow) return "the stack overflowed: too deep a recursion, or too large a local variable";
  if (report.message[0]) return report.message;
  if (report.code <= 0) return "the signal was raised or sent to the process";
  char text[96];
  switch (report.signal) {
    case SIGSEGV:
    case SIGBUS:
      if (report.address == 0 && report.signal == SIGSEGV) return "a null pointer was followed";
      std::snprintf(text, sizeof text, "memory at 0x%lx was used, which is not there or not allowed",
                    static_cast<unsigned long>(report.address));
      return text;
    case SIGFPE:
      return report.code == FPE_INTDIV ? "an integer was divided by zero" : "arithmetic failed";
    case SIGILL:
      return "an instruction that this processor does not have, or undefined behaviour that ends so, such as a "
             "function "
             "that reaches its end without the return that it needs";
    default:
      return "the process was ended by " + protocol::signal_name(report.signal);
  }
}

}  // namespace lockstep::worker
