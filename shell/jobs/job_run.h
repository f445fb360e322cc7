// `lockstep run -- LAUNCHER…` starts the launcher of a Python job, watches the job's ranks, and says what went wrong.
//
// The job's output isn't touched: the launcher has this process's terminal and files. Nothing is signalled but the
// launcher, which ends what it has started.
//
// A rank is known by its file in the job's folder, and its end by a pidfd. Whether the job goes on is seen from the
// numbers of its collectives, which the ranks are asked for now and then: they can't say it themselves while they are
// stuck. When it does not go on, or a rank has failed, all ranks are asked for their collectives and stacks, and
// inspectors/remains judges them as `lockstep diagnose` would. While a rank is stopped in lockstep.breakpoint(), no
// progress is expected, and a prompt opens (job_prompts.h).
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/descriptor.h"
#include "protocol/finding.h"
#include "shell/jobs/job_findings.h"
#include "shell/jobs/job_folder.h"
#include "shell/jobs/job_output_tail.h"
#include "shell/jobs/job_prompts.h"
#include "shell/jobs/job_signals.h"
#include "shell/jobs/rank_ends.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {

struct JobOptions {
  std::vector<std::string> launcher;  // a program and its arguments
  double hang_timeout_s = 0;  // 0: only what is proven ends the job
  std::string findings;  // a file to which findings are added as lines of JSON; empty: none
  double proof_s = 5;  // that ranks get to leave a collective before a stall is looked at
  double first_rank_s = 10;  // after which a job without a rank is told that nothing is watched
  int tail = 0;  // how many of each rank's last lines of output a failure is reported with
  ServePrompt serve_prompt;  // at breakpoints, where standard input and output are a terminal; none: a line says where
};

class JobRun {
 public:
  explicit JobRun(JobOptions options);
  ~JobRun();

  /// Runs until the launcher ends. Returns the exit code. Throws StartError, UsageError.
  int run();

 private:
  struct Watched {
    JobMember member;
    Descriptor pidfd;
  };

  void look_for_ranks();
  void look_for_stops();
  void on_rank_end(int pid);
  void look_at_progress();
  void plan_next_look();
  void say_that_nothing_is_watched() const;
  void on_stall(double seconds);
  /// Returns ranks that have not said that they end.
  std::vector<JobMember> running() const;
  /// Returns last_picture_ and how ranks ended.
  inspect::Remains with_ends() const;
  void take_signals();
  void on_interrupt(int number);
  bool is_watched(int rank) const;
  /// Begins an attempt, since the launcher starts ranks again: what is known of the earlier one is past.
  void begin_attempt();
  void report(const std::vector<Finding>& findings) const;
  void conclude(const ProcessEnd& end);
  void report_last_output() const;
  /// Reports for a job that has succeeded the rank that the others waited for, if there is one.
  void report_straggler();
  /// Takes ends that only the launcher knows; and those that it has brought about are no failures.
  void take_launcher_report();
  bool has_failure() const;
  bool is_anyone_waiting() const;

  const JobOptions options_;
  std::unique_ptr<JobFolder> folder_;
  std::unique_ptr<JobOutputTail> output_tail_;  // with options_.tail
  std::unique_ptr<JobFindings> findings_;
  EventLoop loop_;
  Deadline next_look_, first_rank_;
  Descriptor new_ranks_;  // inotify
  std::unique_ptr<Child> launcher_;
  std::unique_ptr<JobSignals> signals_;
  std::unique_ptr<JobPrompts> prompts_;
  std::map<int64_t, Watched> watched_;  // by pid
  std::map<int, SeenEnd> ends_;
  std::optional<MemoryKills> memory_kills_;
  std::map<int, std::string> progress_;  // rank → what it answered last
  EventLoop::Clock::time_point next_picture_, pictured_at_, progressed_at_, started_ = EventLoop::Clock::now();
  std::map<int, bool> waits_;  // rank → a collective of it has not ended
  inspect::Remains last_picture_;  // of the ranks that ran: at the first failure, or in a stall that has not ended
  std::vector<Finding> verdict_;  // of a hang that ends the job, or of one that was interrupted
  bool ending_ = false;  // the launcher has been asked to end
  bool failed_ = false;  // a rank has: most launchers end the others then
  bool failed_before_interrupt_ = false;
  bool warned_ = false;  // of a stall that is not proven, since the last progress
  bool ever_ranks_ = false;
  int world_size_ = 0;
  int interrupted_ = 0;  // the signal
  int exit_code_ = 0;
};

}  // namespace lockstep::shell
