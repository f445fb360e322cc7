// Opens the prompt of lockstep.breakpoint() in the terminal of `lockstep run -- LAUNCHER…`.
//
// The terminal is the launcher's while the job runs: nothing here reads it. When ranks wait at a breakpoint, a process
// of its own serves the prompt. It leads a process group of its own, which is in the foreground as long as the prompt
// is open, as a shell does with its jobs: Ctrl-C is the prompt's then, and what reads the terminal in the launcher's
// group waits (SIGTTIN) until the prompt has closed. When the process ends, the launcher's group has the terminal
// again, with the modes that it had.
//
//   closed ─(ranks wait)→ gathering ─(all, or 300 ms)→ open ─(the process has ended)→ closed
//
// Without a terminal of which this process's group is in the foreground, and while the job itself waits for what is
// typed there, a line says where the ranks wait, and how to attach.
#pragma once
#include <sys/types.h>
#include <termios.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/descriptor.h"
#include "shell/jobs/job_folder.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"

namespace lockstep::shell {

/// Serves a prompt over the job `id` on this terminal until its user lets the job go on. `first_cell`: the number of its
/// first cell. Returns the number that the next cell would have. Called in a process of its own.
using ServePrompt = std::function<int64_t(const std::string& id, int64_t first_cell)>;

class JobPrompts {
 public:
  /// Without `serve`, a line is all there is.
  JobPrompts(EventLoop& loop, std::string job, ServePrompt serve);
  /// Ends a prompt that is open, and takes the terminal back.
  ~JobPrompts();
  JobPrompts(const JobPrompts&) = delete;
  JobPrompts& operator=(const JobPrompts&) = delete;

  /// Takes the ranks that run, as they describe themselves now. `launcher` is its process.
  void take(std::vector<JobMember> ranks, pid_t launcher);
  /// Whether a rank is at a breakpoint, or a prompt is open: no progress is to be expected.
  bool is_anyone_stopped() const;

 private:
  using Process = std::pair<int64_t, uint64_t>;  // pid and start time: a later process may have the pid
  static Process process_of(const JobMember& rank);

  /// Returns ranks that wait for a shell, without those whose prompt has ended by a signal at this stop.
  std::vector<const JobMember*> waiting() const;
  void look();
  void open_or_tell();
  bool open();
  void closed();
  void tell(const std::vector<const JobMember*>& ranks);

  EventLoop& loop_;
  const std::string job_;
  const ServePrompt serve_;
  std::vector<JobMember> ranks_;
  pid_t launcher_ = -1;
  Deadline gathering_;
  std::map<Process, int64_t> told_, left_;  // process of a rank → number of its stop
  pid_t process_ = -1;
  Descriptor pidfd_, report_;
  termios modes_{};
  int64_t next_cell_ = 1;
};

}  // namespace lockstep::shell
