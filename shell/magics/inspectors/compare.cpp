// %compare says whether two recorded runs are the same training. The shell reads the recordings: no rank is asked.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "inspectors/compare/folders.h"
#include "protocol/error.h"
#include "shell/magics/inspectors/inspector_magic.h"

namespace lockstep::shell {
namespace {

namespace compare = inspect::compare;

/// In one folder, the candidate is what record_candidate has recorded there, and never the reference itself.
compare::RunFolders folders_of(const SessionCore& session, const std::vector<std::string>& words) {
  const std::string folder = path_of_ranks(session, words.front());
  compare::RunFolders folders = compare::reference_in(folder);
  const std::string candidate = compare::run_of_candidate(folder, 0).folder;
  if (words.size() == 1 && !compare::has_recordings(candidate))
    throw UsageError(
        candidate +
        " has no recording: record one with inspect::record_candidate, or name the folder of the other run");
  compare::set_candidate(folders, path_of_ranks(session, words.back()));
  return folders;
}

CellOutcome run(MagicCall& call) {
  const std::vector<std::string>& words = call.given.words();
  compare::JudgeOptions options;
  if (const auto rtol = call.given.value("--rtol")) {
    char* end = nullptr;
    options.rtol = std::strtod(rtol->c_str(), &end);
    if (*end != '\0' || rtol->empty() || !std::isfinite(*options.rtol) || *options.rtol < 0)
      throw UsageError("--rtol is a number that is not negative");
  }
  if (call.session.options().rehearsal) return {};  // no cell has recorded anything
  try {
    const compare::RunFolders folders = folders_of(call.session, words);
    if (options.rtol) compare::check_takes_rtol(folders);
    if (folders.candidate == folders.reference && path_of_ranks(call.session, words.front()) != folders.reference)
      throw UsageError(words.back() + " has no candidate: its reference would be compared with itself");
    compare::Comparison result = compare::judge_folders(folders, options);
    // As in lockstep compare, where not all was compared, no script goes on as if it was.
    const bool is_judged = result.is_same || std::ranges::any_of(result.findings, [](const Finding& each) {
                             return each.severity == Severity::fault;
                           });
    return {.status = is_judged ? CellStatus::ok : CellStatus::usage_error, .findings = std::move(result.findings)};
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {  // of the recordings
    throw UsageError(error.what());
  }
}

const RegisterMagic kCompare(
    {.name = "compare",
     .summary = "are two recorded runs the same training, and if not, where do they part first?",
     .help =
         "inspect::record_reference(FOLDER, train) and inspect::record_candidate(FOLDER, train) record in cells of "
         "C++;\nlockstep compare --keep FOLDER records jobs. Without OTHER, the reference in FOLDER is compared with "
         "the candidate\nin it. A candidate that was recorded with all_faults, or --all-faults, has an answer with all "
         "faults.",
     .takes = {{"FOLDER", "of inspect::record_reference, of --keep, or of one run; on the machine of the shell"},
               {"[OTHER]", "the folder of the other run"},
               {"--rtol R", "for recordings without perturbed runs: how far values may differ, relative"}},
     .line = run,
     .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
