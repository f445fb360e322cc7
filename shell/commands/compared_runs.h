// Runs of training programs that are recorded for `lockstep compare`.
#pragma once
#include <string>

#include "inspectors/compare/folders.h"

namespace lockstep::shell {

/// Runs `command` of a shell to its end, as a run that is recorded; messages call it `what` ("the candidate"). Its output goes
/// to output.log in the run's folder, which is made anew. Returns 0; or 128 and the number of the signal that has
/// interrupted it, after the end of its output was shown. Throws Error, with the end of its output, where it fails or has
/// recorded nothing.
int run_recorded(const std::string& what, const std::string& command, const inspect::compare::RecordedRun& run);

}  // namespace lockstep::shell
