#include "shell/jobs/launcher_process.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "protocol/error.h"
#include "shell/jobs/job_signals.h"

namespace lockstep::shell {

LauncherProcess::LauncherProcess(const std::vector<std::string>& command,
                                 const std::map<std::string, std::string>& environment) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    if (!environment.contains(std::string(text.substr(0, text.find('='))))) variables.emplace_back(text);
  }
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (const std::string& each : command) argv.push_back(const_cast<char*>(each.c_str()));
  for (const std::string& each : variables) envp.push_back(const_cast<char*>(each.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  Pipe report = make_pipe();  // closed by exec; or the error
  const BlockedSignals signals;  // the handlers of this program are not the child's
  pid_ = ::fork();
  if (pid_ < 0) throw StartError(command.front() + " could not be started: " + std::strerror(errno));
  if (pid_ == 0) {
    // What this program has changed for itself is not the launcher's. What it was started with is: nohup ignores SIGHUP.
    ::signal(SIGPIPE, SIG_DFL);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
      struct sigaction now;
      if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) ::signal(number, SIG_DFL);
    }
    signals.restore();
    ::execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    static_cast<void>(!::write(report.write.get(), &error, sizeof error));
    ::_exit(127);
  }
  signals.restore();
  pidfd_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  const int no_pidfd = pidfd_ ? 0 : errno;
  report.write.reset();
  int error = 0;
  ssize_t count;
  while ((count = ::read(report.read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (count == 0 && pidfd_) return;
  if (count == 0) {  // its end could not be seen
    ::kill(pid_, SIGKILL);
    error = no_pidfd;
  }
  ::waitpid(pid_, nullptr, 0);
  throw StartError(command.front() + " could not be started: " + std::strerror(error) +
                   (error == ENOENT ? ". Is the environment active that has it? A path works, too" : ""));
}

std::optional<ProcessEnd> LauncherProcess::ended() {
  if (end_) return end_;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  end_ = ProcessEnd{.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                    .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                    .core = WIFSIGNALED(status) && WCOREDUMP(status)};
  return end_;
}

void LauncherProcess::signal(int number) const {
  if (!end_) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
}

}  // namespace lockstep::shell
