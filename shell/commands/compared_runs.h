// Runs of training programs that are recorded for `lockstep compare`.
#pragma once
#include <string>

namespace lockstep::shell {

struct ComparedRun {
  std::string what;  // "the candidate", for messages
  std::string command;  // of a shell
  std::string folder;  // in which its recordings are made; it is made, and older recordings in it are removed
  int steps = 2;
  bool has_values = false;
  int noise = 0;  // the number of a perturbed run, from 1; 0: it is not perturbed
};

/// Whether a folder has the recording of a run.
bool has_recordings(const std::string& folder);

/// Takes out of a folder what run_recorded() has left there, and removes it if that was all. Throws UsageError.
void remove_recordings(const std::string& folder);

/// Runs it to its end. Its output goes to output.log in the folder. Returns 0; or 128 and the number of the signal that has
/// interrupted it, after the end of its output was shown. Throws UsageError, with the end of its output, where it fails or
/// has recorded nothing.
int run_recorded(const ComparedRun& run);

}  // namespace lockstep::shell
