// `lockstep compare` says whether a run in another layout is the same training as a run of one process, and if not, at
// which value of which step they part (docs/compare.md).
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "inspectors/compare/judge.h"
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
namespace fs = std::filesystem;

constexpr int kSteps = 2, kPerturbedRuns = 4;

struct CompareCommand {
  std::vector<std::string> folders;
  std::string reference, candidate, keep;
  std::optional<int> steps, runs;
  std::optional<double> factor, rtol;
  bool as_json = false;
};

/// The folders of the runs that are compared.
struct Folders {
  std::string reference, candidate;
  std::vector<std::string> perturbed;
};

std::string in(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

constexpr std::string_view kPerturbed = "perturbed-";

std::string perturbed_name(int number) { return fmt::format("{}{}", kPerturbed, number); }

/// Removes the runs that an earlier `--keep` has left there, which are not those of the reference to be recorded.
void remove_earlier_runs(const std::string& folder) {
  for (const char* name : {"reference", "candidate"}) remove_recordings(in(folder, name));
  std::error_code error;
  std::vector<std::string> perturbed;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(kPerturbed)) perturbed.push_back(entry->path().string());
  for (const std::string& each : perturbed) remove_recordings(each);
}

/// Returns the runs that an earlier `--keep` has left there, or the folder of one run.
Folders of_reference(const std::string& folder) {
  if (!is_folder(folder)) throw UsageError(folder + ": there is no such folder");
  Folders folders;
  folders.reference = is_folder(in(folder, "reference")) ? in(folder, "reference") : folder;
  for (int i = 1; has_recordings(in(folder, perturbed_name(i))); ++i)
    folders.perturbed.push_back(in(folder, perturbed_name(i)));
  return folders;
}

std::string of_candidate(const std::string& folder) {
  if (!is_folder(folder)) throw UsageError(folder + ": there is no such folder");
  for (const char* name : {"candidate", "reference"})
    if (is_folder(in(folder, name))) return in(folder, name);
  return folder;
}

compare::Run read(const std::string& folder) {
  try {
    return compare::read_run(folder);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

void check_reference(const std::string& folder) {
  const size_t ranks = read(folder).ranks.size();
  if (ranks != 1)
    throw UsageError(
        fmt::format("the reference has {} ranks: it is the training of one process, on the whole batch", ranks));
}

/// Runs what was given as commands. Returns the exit code of an interrupt, or 0.
int record(const CompareCommand& command, const std::string& keep, Folders& folders) {
  const int steps = command.steps.value_or(kSteps);
  const auto run = [&](const ComparedRun& each) {
    write_message(each.what);
    return run_recorded(each);
  };
  if (!command.reference.empty()) {
    remove_earlier_runs(keep);
    folders = {.reference = in(keep, "reference")};
    ComparedRun reference{.what = "the reference",
                          .command = command.reference,
                          .folder = folders.reference,
                          .steps = steps,
                          .has_values = true};
    if (const int code = run(reference)) return code;
    check_reference(folders.reference);
    const int runs = command.runs.value_or(kPerturbedRuns);
    for (int i = 1; i <= runs; ++i) {
      ComparedRun perturbed = reference;
      perturbed.what = fmt::format("the reference, perturbed ({} of {})", i, runs);
      perturbed.folder = in(keep, perturbed_name(i));
      perturbed.has_values = false;
      perturbed.noise = i;
      if (const int code = run(perturbed)) return code;
      folders.perturbed.push_back(perturbed.folder);
    }
  }
  if (command.candidate.empty()) return 0;
  folders.candidate = in(keep, "candidate");
  return run({.what = "the candidate", .command = command.candidate, .folder = folders.candidate, .steps = steps});
}

compare::Comparison judge(const CompareCommand& command, const Folders& folders) {
  const compare::Run reference = read(folders.reference), candidate = read(folders.candidate);
  std::vector<compare::Run> perturbed;
  for (const std::string& each : folders.perturbed) perturbed.push_back(read(each));
  const compare::JudgeOptions options{.factor = command.factor.value_or(compare::kRoundingFactor),
                                      .rtol = command.rtol};
  const bool has_values = reference.ranks.size() == 1 && reference.ranks.front().about.has_values;
  try {
    if (has_values && perturbed.empty() && !command.rtol && candidate.ranks.size() > 1)
      throw UsageError(folders.reference +
                       " has no perturbed runs beside it, so what rounding explains is not known: give --rtol, or "
                       "record it with --reference and --keep");
    if (!perturbed.empty() || (has_values && command.rtol))
      return compare::judge(reference, perturbed, candidate, options);
    return compare::judge_same_layout(reference, candidate, options);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
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
  if (command.rtol && (!std::isfinite(*command.rtol) || *command.rtol < 0))
    throw UsageError("--rtol is a number that is not negative");
}

/// Refuses what has no effect with this reference.
void check(const CompareCommand& command, const Folders& recorded) {
  if (command.rtol && !recorded.perturbed.empty())
    throw UsageError("--rtol is for recordings without perturbed runs, and " + recorded.reference +
                     " has some beside it, which show what rounding explains");
  if (command.factor && recorded.perturbed.empty())
    throw UsageError("--factor is for perturbed runs, and " + recorded.reference + " has none beside it");
}

int run_compare(const CompareCommand& command) {
  check(command);
  std::optional<TemporaryFolder> temporary;
  std::string keep = command.keep;
  if (keep.empty() && !(command.reference.empty() && command.candidate.empty()))
    keep = temporary.emplace("compare").path();
  Folders folders;
  if (!command.folders.empty()) {
    folders = of_reference(command.folders.front());
    check(command, folders);
  }
  if (command.folders.size() == 2) folders.candidate = of_candidate(command.folders.back());
  if (const int code = record(command, keep, folders)) return code;
  if (folders.candidate.empty() || folders.reference.empty()) return kExitOk;
  const compare::Comparison result = judge(command, folders);
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
  app.add_option("--keep", command->keep, "Keep recordings and outputs of the runs in this folder")
      ->type_name("FOLDER");
  app.add_flag("--json", command->as_json, "JSON lines: compare, finding, end");
  app.footer(
      "Exit codes: 0 the same training; 1 a difference; 2 bad usage, a run that fails or records nothing, a recording "
      "that can't be read\nor has less than the other; 130 interrupted.");
  return [command] { return run_compare(*command); };
}

const RegisterCommand kCompare({"compare", "Is it the same training in another layout?", set_up_compare});

}  // namespace
}  // namespace lockstep::shell
