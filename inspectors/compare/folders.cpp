#include "inspectors/compare/folders.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "inspectors/compare/recording.h"
#include "inspectors/compare/replacements.h"
#include "inspectors/compare/words.h"
#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/read_json.h"

namespace lockstep::inspect::compare {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *kReference = "reference", *kCandidate = "candidate", *kPerturbed = "perturbed-";
constexpr const char *kReplaced = "replaced", *kReplacements = "replacements";
constexpr const char *kOptions = "options.json", *kOutput = "output.log", *kRecording = ".rec";

std::string in(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

std::string perturbed_in(const std::string& folder, int64_t number) {
  return in(folder, fmt::format("{}{}", kPerturbed, number));
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

void check_folder(const std::string& folder) {
  if (!is_folder(folder)) throw Error(folder + ": there is no such folder");
}

/// Removes the recordings of one run, and its folder if that was all.
void remove_recordings(const std::string& folder) {
  if (!is_folder(folder)) return;
  std::error_code error;
  bool is_empty = true;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() == kRecording || path.filename() == kOptions || path.filename() == kOutput)
      fs::remove(path, error);
    else
      is_empty = false;
  }
  if (!error && is_empty) fs::remove(folder, error);
  if (error) throw Error(folder + " has recordings that can't be removed: " + error.message());
}

struct Runs {
  Run reference, candidate;
  std::vector<Run> perturbed;
};

Runs read_runs(const RunFolders& folders) {
  Runs runs{.reference = read_run(folders.reference), .candidate = read_run(folders.candidate), .perturbed = {}};
  for (const std::string& each : folders.perturbed) runs.perturbed.push_back(read_run(each));
  return runs;
}

}  // namespace

std::vector<RecordedRun> runs_of_reference(const std::string& folder, int64_t steps, int64_t perturbed) {
  std::vector<RecordedRun> runs{{.folder = in(folder, kReference), .steps = steps, .has_values = true}};
  for (int64_t i = 1; i <= perturbed; ++i)
    runs.push_back({.folder = perturbed_in(folder, i), .steps = steps, .noise = i});
  return runs;
}

RecordedRun run_of_candidate(const std::string& folder, int64_t steps) {
  return {.folder = in(folder, kCandidate), .steps = steps};
}

RecordedRun run_with_replacements(const std::string& folder, int64_t steps) {
  return {.folder = in(folder, kReplaced), .steps = steps, .replacements = fs::absolute(in(folder, kReplacements))};
}

void prepare_run(const RecordedRun& run) {
  remove_recordings(run.folder);
  std::error_code error;
  fs::create_directories(run.folder, error);
  if (error) throw Error(run.folder + " can't be made: " + error.message());
  const json options{
      {"steps", run.steps}, {"has_values", run.has_values}, {"noise", run.noise}, {"replacements", run.replacements}};
  protocol::write_at_once(in(run.folder, kOptions), options.dump());
}

RecordedRun read_run_options(const std::string& folder) {
  const std::string path = in(folder, kOptions);
  try {
    const json options = protocol::read_json(protocol::read_file(path).value_or(""));
    return {.folder = folder,
            .steps = options.at("steps"),
            .has_values = options.at("has_values"),
            .noise = options.at("noise"),
            .replacements = options.at("replacements")};
  } catch (const json::exception&) {
    throw Error(path + " has no options of a run of lockstep compare");
  }
}

void remove_replaced(const std::string& folder) {
  for (const char* each : {kReplaced, kReplacements}) remove_recordings(in(folder, each));
}

void remove_candidate(const std::string& folder) {
  remove_replaced(folder);
  remove_recordings(in(folder, kCandidate));
}

void remove_runs(const std::string& folder) {
  if (!is_folder(folder)) return;
  remove_candidate(folder);
  std::vector<std::string> runs{in(folder, kReference)};
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(kPerturbed)) runs.push_back(entry->path().string());
  for (const std::string& each : runs) remove_recordings(each);
}

std::string path_of_recording(const std::string& folder, int rank) {
  return in(folder, fmt::format("rank-{}{}", rank, kRecording));
}

bool has_recordings(const std::string& folder) {
  std::error_code error;
  return fs::exists(path_of_recording(folder, 0), error);
}

std::string path_of_output(const std::string& folder) { return in(folder, kOutput); }

RunFolders reference_in(const std::string& folder) {
  check_folder(folder);
  const std::string reference = in(folder, kReference);
  RunFolders folders{.reference = is_folder(reference) ? reference : folder};
  for (int64_t i = 1; has_recordings(perturbed_in(folder, i)); ++i)
    folders.perturbed.push_back(perturbed_in(folder, i));
  return folders;
}

void set_candidate(RunFolders& folders, const std::string& folder) {
  check_folder(folder);
  folders.candidate = folder;
  for (const char* name : {kReference, kCandidate})
    if (is_folder(in(folder, name))) folders.candidate = in(folder, name);
  if (folders.candidate != in(folder, kCandidate) || !has_recordings(in(folder, kReplaced))) return;
  folders.replaced = in(folder, kReplaced);
  folders.replacements = in(folder, kReplacements);
}

void check_takes_rtol(const RunFolders& folders) {
  if (!folders.perturbed.empty())
    throw Error("--rtol is for recordings without perturbed runs, and " + folders.reference +
                " has some beside it, which show what rounding explains");
}

void write_replacements(const std::string& folder, const RunFolders& folders, const JudgeOptions& options) {
  const Runs runs = read_runs(folders);
  ReplacementWriter writer(in(folder, kReplacements), runs.reference, runs.candidate);
  JudgeOptions with_writer = options;
  with_writer.writer = &writer;
  judge(runs.reference, runs.perturbed, runs.candidate, with_writer);
  writer.close();
}

Comparison judge_folders(const RunFolders& folders, const JudgeOptions& options) {
  const Runs runs = read_runs(folders);
  const bool has_values = runs.reference.ranks.size() == 1 && runs.reference.ranks.front().about.has_values;
  if (has_values && runs.perturbed.empty() && !options.rtol && runs.candidate.ranks.size() > 1)
    throw Error(folders.reference +
                " has no perturbed runs beside it, so what rounding explains is not known: give --rtol, or record the "
                "reference with perturbed runs");
  if (runs.perturbed.empty() && !(has_values && options.rtol))
    return judge_same_layout(runs.reference, runs.candidate, options);
  Comparison result = judge(runs.reference, runs.perturbed, runs.candidate, options);
  if (result.differing == 0 || folders.replaced.empty()) return result;
  try {
    const Run replacements = read_run(folders.replacements);
    if (!are_of(replacements, runs.reference)) return result;
    JudgeOptions with_replacements = options;
    with_replacements.replacements = &replacements;
    Comparison replaced = judge(runs.reference, runs.perturbed, read_run(folders.replaced), with_replacements);
    if (replaced.steps < result.steps) throw Error(fmt::format("it has {} of {} steps", replaced.steps, result.steps));
    if (replaced.differing > 0) return replaced;
    result.findings.push_back(finding_of_no_difference(replaced.steps));
  } catch (const Error& error) {
    result.findings.push_back(finding_of_failed_run(error.what()));
  }
  return result;
}

}  // namespace lockstep::inspect::compare
