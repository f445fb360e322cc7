#include "shell/processes/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "collectives/log/process_identity.h"
#include "protocol/error.h"
#include "protocol/installation.h"

extern char** environ;

namespace lockstep::shell {
namespace {

/// What the child does between fork and exec: async-signal-safe calls only, since libzmq has a thread of its own.
[[noreturn]] void become(const char* program, char* const* arguments, char* const* environment,
                         const std::vector<int>& inherit, int output, int input, bool dies_with_shell, pid_t parent,
                         int report) {
  const auto fail = [&](int error) {
    (void)!::write(report, &error, sizeof error);
    ::_exit(127);
  };
  if (::setpgid(0, 0) != 0) fail(errno);
  if (dies_with_shell && ::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail(errno);
  if (::getppid() != parent) ::_exit(127);  // the shell died before the line above took effect
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_DFL);
  if (::dup2(input, STDIN_FILENO) < 0) fail(errno);
  if (output >= 0 && (::dup2(output, STDOUT_FILENO) < 0 || ::dup2(output, STDERR_FILENO) < 0)) fail(errno);
  for (int fd : inherit)
    if (::fcntl(fd, F_SETFD, 0) != 0) fail(errno);
  ::execve(program, arguments, environment);
  fail(errno);
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

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

std::string ProcessEnd::str() const {
  if (signal != 0) return "was killed by " + signal_name(signal);
  return "exited with code " + std::to_string(code);
}

Child::Child(const Launch& launch) {
  std::vector<std::string> arguments = {launch.program};
  arguments.insert(arguments.end(), launch.arguments.begin(), launch.arguments.end());
  auto environment = merged_environment(launch.environment);
  const auto argv = pointers(arguments), envp = pointers(environment);
  const Pipe report = make_pipe();
  const Descriptor input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0)
    throw StartError("no process could be started for " + launch.program + ": " + std::strerror(errno) +
                     " (ulimit -u, memory)");
  if (pid_ == 0)
    become(launch.program.c_str(), argv.data(), envp.data(), launch.inherit, launch.output, input.get(),
           launch.dies_with_shell, parent, report.write.get());
  // Both sides set it, so that it holds whoever comes first.
  ::setpgid(pid_, pid_);
  pidfd_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  start_time_ = dist::process_start_time(pid_).value_or(0);
  const_cast<Pipe&>(report).write.reset();
  int error = 0;
  ssize_t n;
  do n = ::read(report.read.get(), &error, sizeof error);
  while (n < 0 && errno == EINTR);
  if (n == sizeof error) {
    finish();
    throw StartError(launch.program + " could not be started: " + std::strerror(error));
  }
  if (!pidfd_) {
    finish();
    throw StartError(std::string("a process could not be watched: ") + std::strerror(errno) +
                     " (Linux 5.3 or newer is needed; ulimit -n)");
  }
}

Child::~Child() { finish(); }

std::optional<ProcessEnd> Child::ended() {
  if (end_) return end_;
  siginfo_t info = {};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  // No other process gets its number while it is a zombie, so this reaches only what it left in its group.
  ::kill(-pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  ProcessEnd end;
  if (WIFSIGNALED(status))
    end = {.signal = WTERMSIG(status), .code = 0, .core = WCOREDUMP(status) != 0};
  else
    end.code = WEXITSTATUS(status);
  end_ = end;
  return end_;
}

void Child::kill() {
  if (end_ || pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
}

ProcessEnd Child::finish() {
  if (pid_ <= 0) return {};
  if (!end_) {
    kill();
    siginfo_t info = {};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    ended();
  }
  return end_.value_or(ProcessEnd{});
}

Launch worker_launch() {
  Launch launch;
  launch.program = find_program("lockstep-worker");
  const protocol::LibTorch libtorch = protocol::find_libtorch();
  if (!libtorch.problem.empty()) throw StartError(libtorch.sentence());
  const char* value = std::getenv("LD_LIBRARY_PATH");
  const std::string of_user = value ? value : "";
  // After the user's folders, as the loader would look into a folder that is written in the program. The plug-in for
  // GPUs needs the CUDA runtime of the wheels, which is beside torch/.
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
    std::error_code error;
    folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  }
  const std::string path = folder + "/" + name;
  if (::access(path.c_str(), X_OK) != 0 && name == "lockstep-compiler" && protocol::is_run_only())
    throw StartError(
        "this installation runs built files, and has no compiler of cells: build the script where there is one "
        "(lockstep build SCRIPT -o FILE.lockstep), or install the package with the compiler");
  if (::access(path.c_str(), X_OK) != 0)
    throw StartError(name + " is missing: there is none in " + folder +
                     ". Build all of Lockstep, or let LOCKSTEP_BIN name the folder that has it");
  return path;
}

}  // namespace lockstep::shell
