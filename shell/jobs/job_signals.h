// Handles signals of `lockstep run -- LAUNCHER…`. The launcher gets them too, at once: the watch may be waiting for a
// rank that does not answer, and what ends a job (Ctrl-C, a batch system) does not wait for that.
#pragma once
#include <csignal>
#include <optional>
#include <vector>

#include "protocol/descriptor.h"

namespace lockstep::shell {

/// Handles SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 while it lives. What is ignored when it is made, by
/// nohup or a shell of background jobs, stays ignored. At most one object at a time.
class JobSignals {
 public:
  /// Throws StartError.
  JobSignals();
  ~JobSignals();
  JobSignals(const JobSignals&) = delete;
  JobSignals& operator=(const JobSignals&) = delete;

  /// Sends signals to the process of `pidfd` from here on, also those that have come. Signals of the terminal are left
  /// out: the terminal sends them to the whole foreground group. `pidfd` stays open until this object ends.
  void pass_on_to(int pidfd);

  /// Can be read when a signal has come.
  int fd() const { return pipe_.read.get(); }
  /// Whether one has come that next() has not returned.
  bool has_come() const;
  /// Returns the next signal that has come; nothing: none.
  std::optional<int> next();

 private:
  Pipe pipe_;
  std::vector<int> handled_;
};

}  // namespace lockstep::shell
