// Starts the programs of a session and sees them end. Every child is leader of a process group of its own, is killed
// when the shell dies (PR_SET_PDEATHSIG), and is known by a pidfd, so that no signal ever goes to a process that is
// not the one that was started.
#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/descriptor.h"

namespace lockstep::shell {

struct Launch {
  std::string program;                             // a path
  std::vector<std::string> arguments;              // without the program's name
  std::map<std::string, std::string> environment;  // added to the shell's own
  std::vector<int> inherit;                        // descriptors that stay open under their numbers
  bool dies_with_shell = true;                     // false: it ends by itself when its lifeline does (the keeper)
  int output = -1;                                 // becomes descriptors 1 and 2; -1: those of the shell
};

/// How a process ended, in words: "was killed by SIGKILL", "exited with code 3".
struct ProcessEnd {
  int signal = 0;  // 0: it exited
  int code = 0;
  bool core = false;
  std::string str() const;
};

/// "SIGSEGV"; "signal 63" for one without a name.
std::string signal_name(int signal);

/// A child that runs or has ended. Destroying it kills the child's group and reaps it.
class Child {
 public:
  /// Throws StartError: no such program, no permission, out of processes or memory.
  explicit Child(const Launch& launch);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  uint64_t start_time() const { return start_time_; }  // of /proc/PID/stat: with the pid it names the process for ever
  int pidfd() const { return pidfd_.get(); }  // readable once the process has ended

  /// Nothing while it runs. When it has ended: kills what is left of its group, then reaps it.
  std::optional<ProcessEnd> ended();
  /// Kills the process and its group.
  void kill();
  /// kill() and wait until it is gone.
  ProcessEnd finish();

 private:
  pid_t pid_ = -1;
  uint64_t start_time_ = 0;
  Descriptor pidfd_;
  std::optional<ProcessEnd> end_;
};

/// How lockstep-worker is started: its path, and the library path by which it finds the LibTorch of
/// protocol::find_libtorch(). The worker gives its cells and their programs the user's LD_LIBRARY_PATH back. Throws
/// StartError: no such program, no LibTorch.
Launch worker_launch();

/// The path of a program of Lockstep: in the folder that LOCKSTEP_BIN names, or else beside this executable. Throws
/// StartError naming where it looked.
std::string find_program(const std::string& name);

}  // namespace lockstep::shell
