#include "python/agent/crash_frames.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <thread>

#include "protocol/descriptor.h"
#include "python/agent/stacks.h"
#include "worker/process/stack.h"

namespace lockstep::agent {
namespace {

constexpr std::array kCrashSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};  // as faulthandler.enable()
constexpr std::chrono::seconds kCrashPatience{2};
constexpr size_t kMostFrames = 16;

std::array<struct sigaction, kCrashSignals.size()> g_before_crashes;
pid_t g_crash_process = 0;
std::atomic<pid_t> g_writer = 0;  // the thread of write_frames()
std::atomic<bool> g_crashed = false;
worker::Stack g_crash_stack;
int g_crash_taken = -1;    // an event: the handler has written g_crash_stack
int g_crash_written = -1;  // an event: its frames are on stderr

std::string frames_text() {
  std::string text = "Native frames of the crash, innermost first:\n";
  size_t count = 0;
  for (const nlohmann::json& frame : frames_of(g_crash_stack, /*with_lines=*/false)) {
    const auto function = frame.at("function").get<std::string>();
    if (function.starts_with("_PyEval_") || count++ == kMostFrames) break;  // the rest is in Python's stack
    text += "  " + (function.empty() ? "??" : function) + " in " + frame.at("object").get<std::string>() + "\n";
  }
  return text;
}

/// Names take memory and locks, which a handler can't ask for. This runs on a thread that waits for a crash.
void write_frames() {
  g_writer = ::gettid();
  pollfd taken{g_crash_taken, POLLIN, 0};
  uninterrupted([&] { return ::poll(&taken, 1, -1); });
  try {
    const std::string text = frames_text();
    static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
  } catch (const std::exception&) {  // Python's stack is written without them
  }
  set_event(g_crash_written);
}

void on_crash(int number, siginfo_t* info, void* context) {
  if (::gettid() == g_writer) {  // what the crash has damaged ends the search for names, and Python's stack follows
    set_event(g_crash_written);
    for (;;) ::pause();
  }
  if (::getpid() == g_crash_process && !g_crashed.exchange(true)) {  // else a damaged stack has crashed this function
    worker::capture_interrupted_stack(g_crash_stack, context);
    set_event(g_crash_taken);
    is_ready(g_crash_written, POLLIN, kCrashPatience);
  }
  const struct sigaction& before =
      g_before_crashes[static_cast<size_t>(std::ranges::find(kCrashSignals, number) - kCrashSignals.begin())];
  ::sigaction(number, &before, nullptr);
  if ((before.sa_flags & SA_SIGINFO) != 0)
    before.sa_sigaction(number, info, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    before.sa_handler(number);
  else
    ::raise(number);
}

}  // namespace

void write_frames_of_crashes() {
  worker::warm_up_stacks();
  g_crash_process = ::getpid();
  g_crash_taken = make_event().release();
  g_crash_written = make_event().release();
  sigset_t others, before;
  sigfillset(&others);
  for (const int number : kCrashSignals) sigdelset(&others, number);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  bool has_thread = true;
  try {
    std::thread(write_frames).detach();
  } catch (const std::system_error&) {  // a limit on threads: crashes show Python's stack alone
    has_thread = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!has_thread) return;
  struct sigaction action = {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (size_t i = 0; i < kCrashSignals.size(); ++i) ::sigaction(kCrashSignals[i], &action, &g_before_crashes[i]);
}

}  // namespace lockstep::agent
