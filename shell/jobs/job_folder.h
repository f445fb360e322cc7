// Finds the Python jobs of this user on this machine, by what their ranks left in the runtime folder (protocol/job.h).
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/job.h"
#include "protocol/rank_set.h"

namespace lockstep::shell {

class RankProxy;

struct JobMember {
  protocol::JobRank facts;
  std::string socket;  // where it answers while it lives
  bool is_alive = false;
  std::shared_ptr<RankProxy> proxy;  // asks it in place of this process (agent_client.h); null: it runs on this machine

  std::string folder() const { return socket.substr(0, socket.rfind('/')); }
};

struct Job {
  std::string id;  // "4711-0fdca92a": what follows "job-" in the names of its folders
  std::vector<std::string> folders;  // ranks with different XDG_RUNTIME_DIR have several
  bool is_watched = false;  // the `lockstep run` that made the folder lives
  bool is_session = false;  // the ranks are those of a session, which has them at its own prompt
  std::vector<JobMember> ranks;  // by number

  bool is_alive() const;
  RankSet live_ranks() const;
  int world_size() const;  // of which this machine may have a part
  const JobMember* rank(int number) const;
  /// Returns why there is no file of a rank: "has not called this package yet", "runs on another machine"; both with
  /// "or" where the launcher does not say how many ranks this machine has.
  std::string absence_of(int number) const;
};

/// Returns all jobs in `folders` (protocol::runtime_directories()), oldest first. Files of no rank are left out.
std::vector<Job> read_jobs(const std::vector<std::string>& folders);

/// Reads one job's folder. Returns a job without ranks where there is none.
Job read_job(const std::string& folder);

/// Removes the folders of jobs of which no rank and no `lockstep run` lives. Returns their ids. Nothing is signalled.
std::vector<std::string> clean_jobs(const std::vector<std::string>& folders);

/// Makes a folder for a job of this process, in the user's runtime folder; the destructor removes it with everything in
/// it. Throws StartError.
class JobFolder {
 public:
  explicit JobFolder(const std::vector<std::string>& launcher, bool is_session = false);
  ~JobFolder();
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::string& path() const { return path_; }
  Job read() const { return read_job(path_); }
  /// Writes the launcher's report (protocol/job.h) for one rank. `exit_code` is that of Python's subprocess: -9 for SIGKILL.
  void report_end(int rank, int64_t pid, int exit_code, int64_t time_s) const;
  struct Judge {
    std::string host;
    pid_t relay = 0;  // its relay on this machine, which runs
    bool is_silent = false;  // has not been heard for 10 s
  };
  /// Returns the machine on which the job is judged; nothing where its relay does not run, or this machine judges.
  std::optional<Judge> judge() const;
  struct Verdict {
    int exit_code = 0;
    bool ends = false;  // the job is to end
    std::string host;  // on which the judge runs
  };
  /// Returns the verdict of the judge; nothing before there is one.
  std::optional<Verdict> verdict() const;

 private:
  std::string path_;
};

/// Returns the folder without space left among those in which ranks of this machine describe themselves; empty where
/// all have some. Such ranks are not watched, and their own words about it may be in a file of their launcher.
std::string full_disk();

}  // namespace lockstep::shell
