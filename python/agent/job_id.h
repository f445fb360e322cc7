// Finds the folder of the job that this process belongs to, and what the job is called on every machine.
#pragma once
#include <string>

namespace lockstep::agent {

/// Returns the folder that LOCKSTEP_JOB names, or one in the user's runtime folder: of the same name where the shell that
/// made that folder is on another machine; without LOCKSTEP_JOB of a name that all ranks of one launcher on this machine
/// derive. Makes it if it is missing. `alone` says that no launcher has started this process. Throws Error where it is not
/// a private folder of this user, and StartError where none can be made.
std::string find_job_folder(bool alone);

/// Returns the launcher's name of the job, which is the same on every machine (JobRank::run). Empty for a job of this
/// machine alone.
std::string run_of_launcher();
/// Returns the last part of LOCKSTEP_JOB (JobRank::watch); empty without it.
std::string watch_of_job();

}  // namespace lockstep::agent
