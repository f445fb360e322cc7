// The folder of the job that this process belongs to.
#pragma once
#include <string>

namespace lockstep::agent {

/// The folder that LOCKSTEP_JOB names, or one in the user's runtime folder whose name all ranks of one launcher on this
/// machine derive; made if it is missing. `alone`: no launcher has started this process. Throws Error where it is not a
/// private folder of this user, and StartError where none can be made.
std::string find_job_folder(bool alone);

}  // namespace lockstep::agent
