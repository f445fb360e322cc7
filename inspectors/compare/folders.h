// The folders of runs that are compared: FOLDER/reference, FOLDER/perturbed-1, …, FOLDER/candidate, FOLDER/replaced
// (the candidate once more, with the values of FOLDER/replacements). Any other folder with recordings has one run.
#pragma once
#include <string>
#include <vector>

#include "inspectors/compare/judge.h"
#include "inspectors/compare/recorded_run.h"

namespace lockstep::inspect::compare {

struct RunFolders {
  std::string reference, candidate;
  std::vector<std::string> perturbed;
  std::string replaced, replacements;  // of the candidate; empty: there are none
};

/// Returns the reference and `perturbed` perturbed runs of it, in `folder`.
std::vector<RecordedRun> runs_of_reference(const std::string& folder, int64_t steps, int64_t perturbed);
RecordedRun run_of_candidate(const std::string& folder, int64_t steps);
/// Returns the run of the candidate whose values are replaced.
RecordedRun run_with_replacements(const std::string& folder, int64_t steps);
/// Writes the replacements of that run. Throws Error.
void write_replacements(const std::string& folder, const RunFolders& folders, const JudgeOptions& options);

/// Makes the folder of a run, without recordings of an earlier one. Its ranks read the options there, in options.json.
/// Throws Error.
void prepare_run(const RecordedRun& run);
/// Reads the options of the run in a folder. Throws Error.
RecordedRun read_run_options(const std::string& folder);
/// Removes the recordings of all runs in `folder`, and folders that are empty then. Throws Error.
void remove_runs(const std::string& folder);
/// Removes the recordings of the candidate and of its run with replacements; remove_replaced() those of the latter.
void remove_candidate(const std::string& folder);
void remove_replaced(const std::string& folder);
/// Returns the file of a rank.
std::string path_of_recording(const std::string& folder, int rank);
bool has_recordings(const std::string& folder);
/// Returns the file for the output of a run of `lockstep compare`.
std::string path_of_output(const std::string& folder);

/// Finds the reference and its perturbed runs in `folder`, or one run. Throws Error where there is no such folder.
RunFolders reference_in(const std::string& folder);
/// Sets the candidate: that in `folder`, the reference if it has none, or one run. Throws Error as above.
void set_candidate(RunFolders& folders, const std::string& folder);

/// Throws Error where the reference has perturbed runs: they show what may differ, and --rtol has no effect.
void check_takes_rtol(const RunFolders& folders);

/// Reads the runs and compares them: as runs of any layout where the reference has values and a tolerance is known,
/// else as runs of one layout. Where the candidate differs and its run with replacements differs, too, returns the
/// comparison of the latter. Throws Error.
Comparison judge_folders(const RunFolders& folders, const JudgeOptions& options);

}  // namespace lockstep::inspect::compare
