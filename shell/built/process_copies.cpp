#include "shell/built/process_copies.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "protocol/descriptor.h"
#include "protocol/error.h"

namespace lockstep::shell {
namespace {

// The first byte of what a copy leaves.
constexpr char kResult = 'r', kError = 'e';

std::string contents_of(const Descriptor& file) {
  struct stat status = {};
  return ::fstat(file.get(), &status) == 0 ? read_at(file.get(), static_cast<size_t>(status.st_size)) : "";
}

[[noreturn]] void be_copy(size_t index, int result, pid_t parent, const std::function<std::string(size_t)>& work) {
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != parent) ::_exit(1);
  std::string bytes;
  try {
    bytes = kResult + work(index);
  } catch (const std::exception& error) {
    bytes = std::string(1, kError) + error.what();
  }
  ::_exit(write_all(result, bytes) ? 0 : 1);
}

}  // namespace

std::vector<std::string> ProcessCopies::run(size_t count, size_t at_once,
                                            const std::function<std::string(size_t)>& work) {
  struct Copy {
    size_t index = 0;
    Descriptor result;
  };
  std::vector<std::string> results(count);
  std::array<Copy, kMost> copies;
  std::string problem;
  size_t next = 0, busy = 0;
  const pid_t parent = ::getpid();

  const auto start = [&](size_t slot) {
    copies[slot] = {next, Descriptor(::memfd_create("lockstep-take", MFD_CLOEXEC))};
    const pid_t pid = copies[slot].result ? ::fork() : -1;
    if (pid < 0) {
      problem = std::string("no copy of this process could be started: ") + std::strerror(errno);
      return;
    }
    if (pid == 0) {
      for (auto& each : running_) each = 0;  // what stops this copy is not for the others
      be_copy(next, copies[slot].result.get(), parent, work);
    }
    ++next;
    ++busy;
    running_[slot] = pid;
    if (const int signal = signal_; signal != 0) ::kill(pid, signal);  // it has come in between
  };
  const auto finish = [&](size_t slot, const siginfo_t& end) {
    const pid_t pid = running_[slot].exchange(0);
    --busy;
    uninterrupted([&] { return ::waitpid(pid, nullptr, 0); });
    const std::string bytes = contents_of(copies[slot].result);
    copies[slot].result.reset();
    if (end.si_code == CLD_EXITED && end.si_status == 0 && bytes.starts_with(kResult)) {
      results[copies[slot].index] = bytes.substr(1);
    } else if (problem.empty()) {
      problem = bytes.starts_with(kError) ? bytes.substr(1)
                : end.si_code == CLD_EXITED
                    ? "a copy of this process exited with code " + std::to_string(end.si_status)
                    : std::string("a copy of this process was ended: ") + ::strsignal(end.si_status);
    }
  };

  while (busy > 0 || (next < count && problem.empty() && signal_ == 0)) {
    for (size_t slot = 0; slot < std::clamp<size_t>(at_once, 1, kMost); ++slot)
      if (running_[slot] == 0 && next < count && problem.empty() && signal_ == 0) start(slot);
    if (busy == 0) break;
    if (!problem.empty())
      for (auto& each : running_)
        if (const pid_t pid = each; pid > 0) ::kill(pid, SIGTERM);
    siginfo_t end = {};
    // It stays a zombie until no signal can be passed on to it, so that its number is nobody else's.
    if (uninterrupted([&] { return ::waitid(P_ALL, 0, &end, WEXITED | WNOWAIT); }) != 0)
      throw StartError(std::string("copies of this process can't be waited for: ") + std::strerror(errno));
    const auto is_ended = [&](const auto& pid) { return pid == end.si_pid; };
    const auto slot = std::find_if(running_.begin(), running_.end(), is_ended);
    if (slot != running_.end())
      finish(static_cast<size_t>(slot - running_.begin()), end);
    else
      ::waitpid(end.si_pid, nullptr, 0);
  }
  if (problem.empty() && signal_ != 0) problem = "interrupted";
  if (!problem.empty()) throw StartError(problem);
  return results;
}

void ProcessCopies::pass_on(int signal) noexcept {
  signal_ = signal;
  for (auto& each : running_)
    if (const pid_t pid = each; pid > 0) ::kill(pid, signal);
}

}  // namespace lockstep::shell
