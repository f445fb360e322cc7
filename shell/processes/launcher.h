// Starts programs and sees them end. A program of a session is leader of a process group of its own, and is killed when
// the shell dies (PR_SET_PDEATHSIG). A child is known by a pidfd, so that no signal ever goes to a process that is not the
// one that was started.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/descriptor.h"
#include "protocol/signal_name.h"

namespace lockstep::shell {

struct Launch {
  std::string program;  // a path, or a name that is found in PATH
  std::vector<std::string> arguments;  // without the program's name
  std::map<std::string, std::string> environment;  // added to the shell's own
  std::vector<int> inherit;  // descriptors that stay open under their numbers
  bool dies_with_shell = true;  // false: it ends by itself when its lifeline does (the keeper)
  int input = -1;  // becomes descriptor 0; -1: /dev/null; as_in_shell: the shell's
  int output = -1;  // becomes those of `outputs`; -1: those of the shell
  std::vector<int> outputs = {1, 2};
  /// Started as a shell starts a command in the foreground: in the group of this process, with the signals that it blocks.
  /// Nobody kills it when its Child or this process ends.
  bool as_in_shell = false;
  /// Signals that it does not ignore, whether or not this process does.
  std::vector<int> default_signals = {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  /// Ignores, within a job of Slurm, what Slurm sends to all processes of a step (protocol/slurm_signals.h). For programs
  /// that start no others, which would ignore it as well.
  bool outlives_slurm_signals = false;
};

/// Says how a process ended, in words: "was killed by SIGKILL", "exited with code 3".
struct ProcessEnd {
  int signal = 0;  // 0: it exited
  int code = 0;
  bool core = false;
  std::string str() const;
  /// Returns the code that a shell gives in $?.
  int exit_code() const { return signal != 0 ? 128 + signal : code; }
};

using protocol::signal_name;

/// A child that runs or has ended. Destroying it kills the child's group and reaps it, but for one as in a shell.
class Child {
 public:
  /// Throws StartError: no such program, no permission, out of processes or memory.
  explicit Child(const Launch& launch);
  /// A child that another one has started for this process (rank_starter.h), as the leader of a group. Throws StartError,
  /// and kills it, where it can't be watched.
  explicit Child(pid_t pid);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  uint64_t start_time() const { return start_time_; }  // of /proc/PID/stat: with the pid it names the process for ever
  int pidfd() const { return pidfd_.get(); }  // readable once the process has ended

  /// Returns nothing while it runs. Once it has ended, kills what is left of its own group, and reaps it.
  std::optional<ProcessEnd> ended();
  /// Does the same, and waits until it has ended or `limit` has passed.
  std::optional<ProcessEnd> ended_within(std::chrono::milliseconds limit);
  /// Does the same, and waits until it has ended.
  ProcessEnd wait();
  /// Sends the signal to the process alone; does nothing once it has ended.
  void signal(int number) const;
  /// Kills the process and its own group.
  void kill();
  /// kill() and wait().
  ProcessEnd finish();

 private:
  const bool leads_group_;
  pid_t pid_ = -1;
  uint64_t start_time_ = 0;
  Descriptor pidfd_;
  std::optional<ProcessEnd> end_;
};

/// Says how lockstep-worker is started: its path, and the library path by which it finds the LibTorch of
/// protocol::find_libtorch(). The worker gives its cells and their programs the user's LD_LIBRARY_PATH back. Throws
/// StartError: no such program, no LibTorch.
Launch worker_launch();

/// Returns the path of a program of Lockstep: in the folder that LOCKSTEP_BIN names, or else beside this executable;
/// lockstep-worker of a wheel in that of protocol::torch_prefix().
/// Throws StartError naming where it looked.
std::string find_program(const std::string& name);

/// Returns the path of the first program of that name in the folders of PATH; empty where there is none.
std::string find_in_path(const std::string& name);

}  // namespace lockstep::shell
