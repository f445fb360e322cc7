#include "shell/processes/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "collectives/log/process_identity.h"
#include "protocol/blocked_signals.h"
#include "protocol/environment.h"
#include "protocol/error.h"
#include "protocol/installation.h"
#include "protocol/slurm_signals.h"

extern char** environ;

namespace lockstep::shell {
namespace {

constexpr const char* kWorker = "lockstep-worker";

/// What the child does between fork and exec: async-signal-safe calls only, since libzmq has a thread of its own.
[[noreturn]] void become(const Launch& launch, char* const* arguments, char* const* environment, int input,
                         pid_t parent, int report, const BlockedSignals& signals) {
  const auto fail = [&] {
    const int error = errno;
    write_all(report, {reinterpret_cast<const char*>(&error), sizeof error});
    ::_exit(127);
  };
  if (!launch.as_in_shell) {
    if (::setpgid(0, 0) != 0) fail();
    if (launch.dies_with_shell && ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail();
    if (::getppid() != parent) ::_exit(127);  // the shell died before the line above took effect
  }
  // The handlers of this program are not the child's.
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now;
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
  }
  for (const int signal : launch.default_signals) ::signal(signal, SIG_DFL);
  if (launch.outlives_slurm_signals && protocol::is_in_slurm_job())
    for (const int signal : protocol::kPreemptionSignals) ::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  if (launch.as_in_shell)
    signals.restore();
  else
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if ((input >= 0 || !launch.as_in_shell) && ::dup2(input, STDIN_FILENO) < 0) fail();
  if (launch.output >= 0)
    for (const int fd : launch.outputs)
      if (::dup2(launch.output, fd) < 0) fail();
  for (const int fd : launch.inherit)
    if (::fcntl(fd, F_SETFD, 0) != 0) fail();
  ::execvpe(launch.program.c_str(), arguments, environment);
  fail();
  ::_exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    if (!added.contains(std::string(text.substr(0, text.find('='))))) result.emplace_back(text);
  }
  for (const auto& [name, value] : added) result.push_back(name + "=" + value);
  return result;
}

}  // namespace

std::string ProcessEnd::str() const {
  if (signal != 0) return "was killed by " + signal_name(signal);
  return "exited with code " + std::to_string(code);
}

Child::Child(const Launch& launch) : leads_group_(!launch.as_in_shell) {
  std::vector<std::string> arguments = {launch.program};
  arguments.insert(arguments.end(), launch.arguments.begin(), launch.arguments.end());
  auto environment = merged_environment(launch.environment);
  const auto argv = pointers(arguments), envp = pointers(environment);
  Pipe report = make_pipe();  // closed by exec; or the error
  const bool reads_nothing = launch.input < 0 && leads_group_;
  const Descriptor nothing(reads_nothing ? ::open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
  const int input = reads_nothing ? nothing.get() : launch.input;
  const pid_t parent = ::getpid();
  {
    const BlockedSignals signals;
    pid_ = ::fork();
    if (pid_ == 0) become(launch, argv.data(), envp.data(), input, parent, report.write.get(), signals);
  }
  if (pid_ < 0)
    throw StartError("no process could be started for " + launch.program + ": " + std::strerror(errno) +
                     " (ulimit -u, memory)");
  if (leads_group_) ::setpgid(pid_, pid_);  // both sides set it, so that it holds whoever comes first
  pidfd_ = open_process(pid_);
  const int no_pidfd = errno;
  start_time_ = dist::process_start_time(pid_).value_or(0);
  report.write.reset();
  int error = 0;
  if (read_all(report.read.get(), &error, sizeof error) == sizeof error) {
    finish();
    throw StartError(
        launch.program + " could not be started: " + std::strerror(error) +
        (launch.as_in_shell && error == ENOENT ? ". Is the environment active that has it? A path works, too" : ""));
  }
  if (!pidfd_) {
    finish();
    throw StartError(std::string("a process could not be watched: ") + std::strerror(no_pidfd) +
                     " (Linux 5.3 or newer is needed; ulimit -n)");
  }
}

Child::Child(pid_t pid) : leads_group_(true), pid_(pid), pidfd_(open_process(pid)) {
  const int no_pidfd = errno;
  start_time_ = dist::process_start_time(pid_).value_or(0);
  if (pidfd_) return;
  finish();
  throw StartError(std::string("a process could not be watched: ") + std::strerror(no_pidfd) + " (ulimit -n)");
}

Child::~Child() {
  if (leads_group_) finish();
}

std::optional<ProcessEnd> Child::ended() {
  if (end_) return end_;
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  // No other process gets its number while it is a zombie, so this reaches only what it left in its group.
  if (leads_group_) ::kill(-pid_, SIGKILL);
  int status = 0;
  uninterrupted([&] { return ::waitpid(pid_, &status, 0); });
  ProcessEnd end;
  if (WIFSIGNALED(status))
    end = {.signal = WTERMSIG(status), .code = 0, .core = WCOREDUMP(status) != 0};
  else
    end.code = WEXITSTATUS(status);
  end_ = end;
  return end_;
}

std::optional<ProcessEnd> Child::ended_within(std::chrono::milliseconds limit) {
  if (!end_) is_ready(pidfd_.get(), POLLIN, limit);
  return ended();
}

ProcessEnd Child::wait() {
  siginfo_t info = {};
  if (!end_) uninterrupted([&] { return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT); });
  return ended().value_or(ProcessEnd{});
}

void Child::signal(int number) const {
  if (!end_) signal_process(pidfd_.get(), number);
}

void Child::kill() {
  if (end_) return;
  if (leads_group_) ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
}

ProcessEnd Child::finish() {
  kill();
  return wait();
}

Launch worker_launch() {
  Launch launch;
  const protocol::LibTorch libtorch = protocol::find_libtorch();
  if (!libtorch.problem.empty()) throw StartError(libtorch.sentence());
  launch.program = find_program(kWorker);
  const std::string of_user = protocol::variable("LD_LIBRARY_PATH");
  // It comes after the user's folders, as the loader would look into a folder that is written in the program. The
  // plug-in for GPUs needs the CUDA runtime of the wheels, which is beside torch/.
  std::string folders = (libtorch.folder / "lib").string();
  std::error_code none;
  std::set<std::string> of_wheels;
  for (const auto& part : std::filesystem::directory_iterator(libtorch.folder / "../nvidia", none))
    if (std::filesystem::is_directory(part.path() / "lib", none)) of_wheels.insert((part.path() / "lib").string());
  for (const std::string& folder : of_wheels) folders += ":" + folder;
  launch.environment = {{"LD_LIBRARY_PATH", of_user + (of_user.empty() ? "" : ":") + folders},
                        {"LOCKSTEP_USER_LIBRARY_PATH", of_user}};
  return launch;
}

std::string find_program(const std::string& name) {
  namespace fs = std::filesystem;
  std::string folder;
  const char* chosen = std::getenv("LOCKSTEP_BIN");
  if (chosen && *chosen) {
    if (!fs::is_directory(chosen))
      throw StartError(std::string("LOCKSTEP_BIN names '") + chosen +
                       "', which is no folder: unset it, or name the one with " + name);
    folder = chosen;
  } else {
    folder = fs::path(protocol::own_program()).parent_path();
  }
  if (name == kWorker && protocol::is_wheel()) folder = (protocol::torch_prefix() / "bin").string();
  const std::string path = folder + "/" + name;
  if (::access(path.c_str(), X_OK) != 0 && name == "lockstep-compiler" && protocol::is_wheel())
    throw StartError(std::string("C++ cells need a compiler, which is not in the wheel: ") + protocol::kGetCells +
                     ". Sessions of Python ranks (lockstep --python) need none");
  if (::access(path.c_str(), X_OK) != 0 && name == "lockstep-compiler" && protocol::is_run_only())
    throw StartError(
        "this installation runs built files, and has no compiler of cells: build the script where there "
        "is one (lockstep build SCRIPT -o FILE.lockstep), or install the package with the compiler");
  if (::access(path.c_str(), X_OK) != 0)
    throw StartError(name + " is missing: there is none in " + folder +
                     ". Build all of Lockstep, or let LOCKSTEP_BIN name the folder that has it");
  return path;
}

std::string find_in_path(const std::string& name) {
  std::istringstream folders(protocol::variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::string path = folder + "/" + name; ::access(path.c_str(), X_OK) == 0) return path;
  return "";
}

}  // namespace lockstep::shell
