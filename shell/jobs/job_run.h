// `lockstep run -- LAUNCHER…` starts the launcher of a Python job, watches the job's ranks, and says what went wrong.
//
// The job's output isn't touched: the launcher has this process's terminal and files. Nothing is signalled but the
// launcher, which ends what it has started.
//
// A rank is known by its file in the job's folder, and its end by a pidfd (rank_watch.h). Ranks on other machines are
// seen through a relay on each (remote_host.h): they belong to the job if they were started with this process's
// LOCKSTEP_JOB, or by the same run of a launcher as ranks that do. One process judges for all machines. Where a
// launcher starts a `lockstep run` on each, that is one of them, and the others learn of its verdict through their
// relays.
//
// Whether the job goes on is seen from the numbers of its collectives, which the ranks are asked for now and then: they
// can't say it themselves while they are stuck. When it does not go on, or a rank has failed, all ranks are asked for
// their collectives and stacks, and inspectors/remains judges them as `lockstep diagnose` would. While a rank is
// stopped in lockstep.breakpoint(), no progress is expected, and a prompt opens (job_prompts.h).
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "protocol/descriptor.h"
#include "protocol/finding.h"
#include "shell/hosts/host.h"
#include "shell/jobs/call_judge.h"
#include "shell/jobs/job_findings.h"
#include "shell/jobs/job_folder.h"
#include "shell/jobs/job_output_tail.h"
#include "shell/jobs/job_prompts.h"
#include "shell/jobs/job_recording.h"
#include "shell/jobs/job_signals.h"
#include "shell/jobs/rank_ends.h"
#include "shell/jobs/rank_watch.h"
#include "shell/jobs/remote_host.h"
#include "shell/processes/deadline.h"
#include "shell/processes/event_loop.h"
#include "shell/processes/launcher.h"

namespace lockstep::shell {

struct JobOptions {
  std::vector<std::string> launcher;  // a program and its arguments
  double hang_timeout_s = 0;  // 0: only what is proven ends the job
  std::string findings;  // a file to which findings are added as lines of JSON; empty: none
  double proof_s = 5;  // that ranks get to leave a collective before a stall is looked at
  /// Seconds after which a job without a rank is reported as not watched, and one with a part of its ranks no longer
  /// waits for the others. Imports can take 10 s.
  double first_rank_s = 30;
  std::vector<Host> hosts;  // on which ranks of the job may run besides this machine
  std::string remote_program;  // the path of lockstep there
  bool is_judged_elsewhere = false;  // the first task of the step judges, as soon as it has a relay here
  bool asks_own_relay = false;  // other processes of this machine have ranks of the job as well
  RecordOptions record;
  int tail = 0;  // how many of each rank's last lines of output the report of a failure has
  ServePrompt serve_prompt;  // at breakpoints, where standard input and output are a terminal; none: a line says where
};

class JobRun {
 public:
  explicit JobRun(JobOptions options);
  ~JobRun();

  /// Runs until the launcher ends. Returns the exit code. Throws StartError, UsageError.
  int run();

 private:
  /// The machine (null: this one) and the pid.
  using Process = std::pair<const RankProxy*, int64_t>;
  /// A folder of the job, and its machine: the same path is another folder on another machine. Null: this machine.
  using Place = std::pair<const RankProxy*, std::string>;
  static Process process_of(const JobMember& rank) { return {rank.proxy.get(), rank.facts.pid}; }

  void look_for_ranks();
  void look_for_stops();
  void start_relays();
  RemoteHost::Listener listener_of_host();
  void on_host_change(const RemoteHost& host);
  void on_remote_rank(const JobMember& rank);
  void on_remote_end(const JobMember& rank, SeenEnd end, const inspect::Remains& left);
  bool is_of_job(const JobMember& rank) const;
  void on_rank(const JobMember& rank);
  void on_rank_change(const JobMember& rank);
  void on_rank_end(const JobMember& rank, SeenEnd end, const inspect::Remains& left);
  void look_at_progress();
  void plan_next_look();
  void say_that_nothing_is_watched() const;
  RankSet unseen() const;  // ranks that have not come since the launcher has started the ranks
  void on_stall(double seconds);
  /// Ends the job where ranks of several machines have called different collectives. Those of one machine compare their
  /// calls themselves.
  bool find_differing_calls();
  /// Asks the launcher to end the job, which has come to this verdict.
  void end_with(std::vector<Finding> verdict, int exit_code, const std::string& message);
  /// Returns ranks that have not reported their end.
  std::vector<JobMember> running() const;
  /// Returns last_picture_ and how ranks ended.
  inspect::Remains with_ends() const;
  void add_left_log(int rank, const SeenEnd& end, inspect::Remains& remains) const;
  /// Judges. The findings name the machines of ranks if the job has several.
  std::vector<Finding> judge(const inspect::Remains& remains) const;
  /// Judges, and returns only the findings that ranks have called different collectives, by their logs.
  std::vector<Finding> differing_calls_of(const inspect::Remains& remains) const;
  /// Adds the machines that do not answer to the findings.
  void add_lost_hosts(std::vector<Finding>& findings) const;
  /// Whether a `lockstep run` on another machine judges the job, which has a relay here.
  bool is_judged_elsewhere() const;
  void say_if_judge_is_silent();
  /// Waits for the verdict of the judge. Returns false where the judge is gone and has given none.
  bool take_verdict();
  void say_verdict(bool ends);
  /// Prints, where ranks were not seen, how ranks on other machines are watched.
  void say_that_others_are_elsewhere() const;
  void take_signals();
  void on_interrupt(int number);
  bool is_watched(int rank) const;
  /// Begins an attempt, since the launcher starts ranks again: forgets the earlier one.
  void begin_attempt();
  void report(const std::vector<Finding>& findings) const;
  void conclude(const ProcessEnd& end);
  void report_last_output() const;
  /// Reports for a job that has succeeded what the logs of its ranks say: calls that differ, which fail the job, or the
  /// rank that the others waited for.
  void report_by_logs();
  /// Takes ends that only the launcher of a machine knows. Those that the launcher has brought about are no failures.
  void take_launcher_report(const Place& place, const std::vector<SeenEnd>& failures);
  /// The launcher may be a rank itself: its parent, which this process is, takes its wait status. A judge elsewhere is
  /// told of it as by a launcher.
  void take_end_of_launcher(const ProcessEnd& end);
  bool has_failure() const;
  /// Takes the end of a job that Slurm cancels or preempts as an interrupt: its ranks' ends by SIGTERM are no failures.
  void look_for_end_by_slurm();
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
  std::unique_ptr<RankWatch> ranks_here_;
  std::unique_ptr<CallJudge> calls_;  // where there are other machines
  std::vector<std::shared_ptr<RemoteHost>> hosts_;
  std::map<std::string, const RemoteHost*> machines_;  // that have a relay, by dist::machine_identity()
  std::set<const RemoteHost*> told_silent_;  // machines whose silence has been reported
  std::map<int, const RemoteHost*> lost_ranks_;
  std::map<Process, JobMember> watched_;
  struct Unclaimed {
    JobMember rank;
    std::optional<SeenEnd> end;
    inspect::Remains left;
  };
  std::map<Process, Unclaimed> unclaimed_;  // ranks elsewhere that are not known to belong to the job
  std::set<std::string> runs_;  // the launchers' names of the job (JobRank::run)
  std::map<int, std::string> host_of_;  // by rank
  std::map<int, Place> place_of_;  // by rank
  std::map<Place, std::vector<SeenEnd>> reports_;  // of launchers elsewhere
  std::map<Place, int> faults_elsewhere_;  // the number that inspectors have found there
  std::set<std::pair<RemoteHost*, std::string>> folders_elsewhere_;  // of the job, on their machines
  std::map<int, SeenEnd> ends_;
  std::map<int, inspect::Remains> left_;  // by ranks of other machines that have ended
  int64_t failed_at_ns_ = 0;  // CLOCK_REALTIME of the first failure
  std::map<int, std::string> progress_;  // rank → what it answered last
  EventLoop::Clock::time_point next_picture_, pictured_at_, progressed_at_, first_rank_at_;
  EventLoop::Clock::time_point started_ = EventLoop::Clock::now();
  std::map<int, bool> waits_;  // rank → a collective of it has not ended
  inspect::Remains last_picture_;  // of the ranks that ran: at the first failure, or in a stall that has not ended
  std::vector<Finding> verdict_;  // of a hang that ends the job, or of one that was interrupted
  bool ending_ = false;  // the launcher has been asked to end
  bool told_judge_silent_ = false;
  bool failed_ = false;  // a rank has: most launchers end the others then
  bool failed_before_interrupt_ = false;
  bool warned_ = false;  // about a stall that is not proven, since the last progress
  bool ever_ranks_ = false;
  int world_size_ = 0;
  bool is_of_this_machine_alone_ = false;  // the launcher says so
  int interrupted_ = 0;  // the signal
  int exit_code_ = 0;
};

}  // namespace lockstep::shell
