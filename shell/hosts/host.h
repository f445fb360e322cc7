// Machines besides this one, and how a program is started on each: by a launcher that exists, which gives a pipe to the
// program's standard input and output, says who may, and encrypts or not.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::shell {

struct Host {
  std::string name;
  /// Runs a program there: its arguments follow these. ssh hands them to a shell, for which they are quoted.
  std::vector<std::string> command;
  bool has_shell = false;

  /// Returns the whole command for `program` with `arguments`.
  std::vector<std::string> starting(const std::string& program, const std::vector<std::string>& arguments) const;
};

/// "node1,node2" or "user@node1,node2": by ssh, which must not ask for anything (keys, an agent). Throws UsageError for
/// an empty name, one that begins with "-", and one that is given twice.
std::vector<Host> ssh_hosts(const std::string& list);

/// The nodes of a Slurm job, by a step of its own on each (srun --overlap). Throws StartError where Slurm does not know
/// the job, or it does not run.
std::vector<Host> slurm_hosts(const std::string& job);

/// Pods of the current namespace, by kubectl exec. Throws UsageError as ssh_hosts() does.
std::vector<Host> kubectl_hosts(const std::string& list);

/// Returns the machines of "node1,node2" (ssh), "slurm:JOB" or "kubectl:POD,POD"; none of an empty text.
std::vector<Host> hosts_of(const std::string& text);

/// Says where this process is in a job of Slurm.
struct SlurmPlace {
  std::string job;
  bool is_task = false;  // of a step: srun has started this process
  int task = 0;  // its number in the step
  bool has_others_here = false;  // machines of the step have several tasks
};
/// Returns nothing outside of Slurm, and in a job of one machine.
std::optional<SlurmPlace> slurm_place();

/// Holds what Slurm says of the end of the job in which this process runs.
struct SlurmEnd {
  std::string job;  // its number; empty: there is none, or Slurm does not answer
  std::string words;  // "Slurm preempts job 17"; empty: Slurm does not end it now
  std::optional<std::chrono::seconds> left;  // until it has to be over, where Slurm does not end it now
};
SlurmEnd slurm_end();
/// Returns how long processes have from SIGTERM to SIGKILL, where Slurm ends a job. Nothing: Slurm does not say.
std::optional<std::chrono::seconds> slurm_kill_wait();

/// The name of this machine; empty where it has none.
std::string this_host();

/// Returns the kind of its processors: "AMD EPYC 9654 96-Core Processor". Empty where Linux does not name it.
std::string processor_of_this_host();

/// Returns the text as a POSIX shell reads it as one word.
std::string quoted_for_shell(const std::string& text);

}  // namespace lockstep::shell
