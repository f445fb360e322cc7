// `lockstep compare` says whether a run in another layout is the same training as a run of one process, and if not, at
// which value of which step they part (docs/compare.md).
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "inspectors/compare/folders.h"
#include "inspectors/compare/words.h"
#include "protocol/error.h"
#include "shell/commands/command.h"
#include "shell/commands/compared_runs.h"
#include "shell/commands/print_findings.h"
#include "shell/commands/temporary_folder.h"
#include "shell/events/exit_code.h"
#include "shell/text/text_output.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
namespace compare = inspect::compare;

constexpr int kSteps = 2, kPerturbedRuns = 4;

struct CompareCommand {
  std::vector<std::string> folders;
  std::string reference, candidate, keep;
  std::optional<int> steps, runs;
  std::optional<double> factor, rtol;
  bool all_faults = false, as_json = false;
};

void check_reference(const std::string& folder) {
  const size_t ranks = compare::read_run(folder).ranks.size();
  if (ranks != 1)
    throw UsageError(
        fmt::format("the reference has {} ranks: it is the training of one process, on the whole batch", ranks));
}

int run(const std::string& what, const std::string& line, const compare::RecordedRun& each) {
  write_message(what);
  return run_recorded(what, line, each);
}

/// Runs what was given as commands. Returns the exit code of an interrupt, or 0.
int record(const CompareCommand& command, const std::string& keep, compare::RunFolders& folders) {
  const int steps = command.steps.value_or(kSteps);
  if (!command.reference.empty()) {
    compare::remove_runs(keep);
    const int perturbed = command.runs.value_or(kPerturbedRuns);
    folders = {};
    for (const compare::RecordedRun& each : compare::runs_of_reference(keep, steps, perturbed)) {
      const std::string what =
          each.noise > 0 ? fmt::format("the reference, perturbed ({} of {})", each.noise, perturbed) : "the reference";
      if (const int code = run(what, command.reference, each)) return code;
      if (each.noise > 0) {
        folders.perturbed.push_back(each.folder);
        continue;
      }
      folders.reference = each.folder;
      check_reference(each.folder);
    }
  }
  if (command.candidate.empty()) return 0;
  compare::remove_candidate(keep);
  const compare::RecordedRun candidate = compare::run_of_candidate(keep, steps);
  folders.candidate = candidate.folder;
  return run("the candidate", command.candidate, candidate);
}

/// Runs the candidate once more, with its values replaced. Returns as record() does.
int record_replaced(const CompareCommand& command, const std::string& keep, compare::RunFolders& folders,
                    const compare::JudgeOptions& options) {
  compare::write_replacements(keep, folders, options);
  const compare::RecordedRun run_again = compare::run_with_replacements(keep, command.steps.value_or(kSteps));
  folders.replaced = run_again.folder;
  folders.replacements = run_again.replacements;
  return run("the candidate, its values replaced by the reference's", command.candidate, run_again);
}

void check(const CompareCommand& command) {
  const size_t runs =
      command.folders.size() + (command.reference.empty() ? 0 : 1) + (command.candidate.empty() ? 0 : 1);
  const bool only_records = runs == 1 && command.folders.empty() && !command.keep.empty();
  if (!command.reference.empty() && !command.folders.empty())
    throw UsageError("--reference is a command that is run, and " + command.folders.front() +
                     " a recording: give one of them");
  if (runs != 2 && !only_records)
    throw UsageError(
        "lockstep compare compares two runs: --reference \"python train.py\" --candidate \"torchrun … train.py\"; a "
        "folder of --keep may stand for either");
  if (command.folders.size() == 2 && (command.steps || !command.keep.empty()))
    throw UsageError(std::string(command.steps ? "--steps" : "--keep") +
                     " is for runs that are recorded, and both folders have been");
  if (command.runs && command.reference.empty())
    throw UsageError("--runs are those of --reference, which is not given");
  if (command.rtol && !command.reference.empty())
    throw UsageError("--rtol is for recordings without perturbed runs, and --reference makes some");
  if (command.all_faults && (command.candidate.empty() || only_records))
    throw UsageError("--all-faults runs --candidate once more, with the values of a reference: give both");
  if (command.rtol && (!std::isfinite(*command.rtol) || *command.rtol < 0))
    throw UsageError("--rtol is a number that is not negative");
}

int run_compare(const CompareCommand& command) {
  check(command);
  std::optional<TemporaryFolder> temporary;
  std::string keep = command.keep;
  if (keep.empty() && !(command.reference.empty() && command.candidate.empty()))
    keep = temporary.emplace("compare").path();
  compare::RunFolders folders;
  if (!command.folders.empty()) {
    folders = compare::reference_in(command.folders.front());
    if (command.factor && folders.perturbed.empty())
      throw UsageError("--factor is for perturbed runs, and " + folders.reference + " has none beside it");
    if (command.rtol) compare::check_takes_rtol(folders);
    if (command.all_faults && folders.perturbed.empty() && !command.rtol)
      throw UsageError("--all-faults needs to know how far values may differ, and " + folders.reference +
                       " has no perturbed runs beside it: give --rtol, or record the reference with perturbed runs");
    if (command.all_faults && !compare::read_run(folders.reference).ranks.front().about.has_values)
      throw UsageError("--all-faults needs the values of a reference, and " + folders.reference + " has sketches only");
  }
  if (command.folders.size() == 2) compare::set_candidate(folders, command.folders.back());
  if (const int code = record(command, keep, folders)) return code;
  if (folders.candidate.empty() || folders.reference.empty()) return kExitOk;
  const compare::JudgeOptions options{.factor = command.factor.value_or(compare::kRoundingFactor),
                                      .rtol = command.rtol};
  compare::Comparison result = compare::judge_folders(folders, options);
  if (command.all_faults && result.differing > 0) {
    try {
      if (const int code = record_replaced(command, keep, folders, options)) {
        compare::remove_replaced(keep);
        return code;
      }
      result = compare::judge_folders(folders, options);
    } catch (const Error& error) {
      compare::remove_replaced(keep);
      result.findings.push_back(compare::finding_of_failed_run(error.what()));
    }
  }
  const int code = has_fault(result.findings) ? kExitFailed : result.is_same ? kExitOk : kExitUsage;
  if (!command.as_json) {
    print_findings(result.findings);
    return code;
  }
  print_findings_as_json({{"event", "compare"},
                          {"same", result.is_same},
                          {"steps", result.steps},
                          {"compared", result.compared},
                          {"differing", result.differing},
                          {"largest", result.largest},
                          {"unit", result.unit},
                          {"factor", command.factor.value_or(compare::kRoundingFactor)},
                          {"perturbed", folders.perturbed.size()},
                          {"replaced", result.is_replaced},
                          {"not_replaced", result.not_replaced},
                          {"says_nothing", result.says_nothing},
                          {"not_recorded", result.not_recorded},
                          {"only_in_candidate", result.only_in_candidate}},
                         result.findings, code);
  return code;
}

std::function<int()> set_up_compare(CLI::App& app) {
  auto command = std::make_shared<CompareCommand>();
  app.add_option("run", command->folders, "Runs that --keep has recorded: the reference, and the candidate")
      ->expected(0, 2)
      ->type_name("FOLDER");
  app.add_option("--reference", command->reference, "Command that trains in one process, on the whole batch")
      ->type_name("COMMAND");
  app.add_option("--candidate", command->candidate, "Command that trains in the layout in question")
      ->type_name("COMMAND");
  app.add_option("--steps", command->steps, "Steps that are recorded; then the runs end (2)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  app.add_option("--runs", command->runs, "Perturbed runs of the reference, which show what rounding explains (4)")
      ->type_name("N")
      ->check(CLI::Range(1, 100));
  app.add_option("--factor", command->factor, "Between what perturbed runs differ by and what is a difference (16)")
      ->type_name("F")
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--rtol", command->rtol, "For recordings without perturbed runs: how far values may differ, relative")
      ->type_name("R");
  app.add_flag("--all-faults", command->all_faults,
               "If the candidate differs, run it once more with each value replaced by the reference's once it is "
               "recorded, and report all differences");
  app.add_option("--keep", command->keep, "Keep recordings and outputs of the runs in this folder")
      ->type_name("FOLDER");
  app.add_flag("--json", command->as_json, "JSON lines: compare, finding, end");
  app.footer(
      "Exit codes: 0 the same training; 1 a difference; 2 bad usage, a run that fails or records nothing, a recording "
      "that can't be read\nor has less than the other; 130 interrupted.");
  return [command] {
    try {
      return run_compare(*command);
    } catch (const UsageError&) {
      throw;
    } catch (const StartError&) {
      throw;
    } catch (const Error& error) {  // of recordings and of runs
      throw UsageError(error.what());
    }
  };
}

const RegisterCommand kCompare({"compare", "Is it the same training in another layout?", set_up_compare});

}  // namespace
}  // namespace lockstep::shell
