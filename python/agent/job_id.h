// Finds the folder of the job that this process belongs to.
#pragma once
#include <string>

namespace lockstep::agent {

/// Returns the folder that LOCKSTEP_JOB names, or one in the user's runtime folder whose name all ranks of one launcher
/// on this machine derive; makes it if it is missing. `alone` says that no launcher has started this process. Throws
/// Error where it is not a private folder of this user, and StartError where none can be made.
std::string find_job_folder(bool alone);

}  // namespace lockstep::agent
