#include "shell/jobs/job_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "protocol/blocked_signals.h"

namespace lockstep::shell {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

std::atomic<int> g_pipe = -1, g_launcher = -1;

/// These came before there was a launcher.
std::atomic<unsigned> g_waiting = 0;  // bits by the signal's number, which is below 32

void on_signal(int number, siginfo_t* info, void*) {
  const int error = errno;
  if (!info || info->si_code != SI_KERNEL) {  // the kernel sends those of the terminal
    if (const int launcher = g_launcher.load(); launcher >= 0)
      signal_process(launcher, number);
    else
      g_waiting.fetch_or(1U << number);
  }
  const auto byte = static_cast<unsigned char>(number);
  static_cast<void>(!::write(g_pipe.load(), &byte, 1));
  errno = error;
}

}  // namespace

JobSignals::JobSignals() : pipe_(make_pipe()) {
  set_nonblocking(pipe_.read.get());
  set_nonblocking(pipe_.write.get());
  g_pipe = pipe_.write.get();
  g_waiting = 0;
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (const int number : kSignals) {
    struct sigaction before;
    if (::sigaction(number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    if (::sigaction(number, &action, nullptr) == 0) handled_.push_back(number);
  }
}

JobSignals::~JobSignals() {
  for (const int number : handled_) ::signal(number, SIG_DFL);
  g_pipe = g_launcher = -1;
}

void JobSignals::pass_on_to(int pidfd) {
  const BlockedSignals between;
  g_launcher = pidfd;
  const unsigned waiting = g_waiting.exchange(0);
  for (const int number : kSignals)
    if ((waiting & 1U << number) != 0) signal_process(pidfd, number);
}

bool JobSignals::has_come() const { return is_ready(pipe_.read.get(), POLLIN); }

std::optional<int> JobSignals::next() {
  unsigned char byte;
  return ::read(pipe_.read.get(), &byte, 1) == 1 ? std::optional<int>(byte) : std::nullopt;
}

}  // namespace lockstep::shell
