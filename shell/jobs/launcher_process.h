// The launcher of a Python job (torchrun, accelerate, …), started as a shell would start it: in this process group, with
// this terminal, input and output. What it starts is its own: it gets signals, its ranks get none.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {

class LauncherProcess {
 public:
  /// `command`: the program, found as execvp finds it, and its arguments. `environment`: added to this process's. Throws
  /// StartError.
  LauncherProcess(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment);
  /// Leaves the process alone.
  ~LauncherProcess() = default;
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable once it has ended
  std::optional<ProcessEnd> ended();
  void signal(int number) const;

 private:
  pid_t pid_ = -1;
  Descriptor pidfd_;
  std::optional<ProcessEnd> end_;
};

}  // namespace lockstep::shell
