#include "inspectors/pickle/reading_limit.h"
#include "inspectors/verify/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "inspectors/findings/about.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/verify/alignment.h"
#include "protocol/dist_error.h"
#include "protocol/text.h"

namespace lockstep::inspect {
namespace {

/// Adds a note if files differ in bytes that belong to no tensor or value. It replaces an ok, since the files differ.
void compare_unseen(const std::vector<Subject>& subjects, About about, Report& report) {
  constexpr size_t kNamed = 3;
  std::map<std::string, std::vector<std::optional<Hash>>> seen;
  for (size_t i = 0; i < subjects.size(); ++i)
    for (const Item& each : subjects[i].unseen) {
      auto& hashes = seen[each.name];
      hashes.resize(subjects.size());
      hashes[i] = each.tensor.defined() ? fingerprint(each.tensor).hash : hash_of(each.value);
    }
  std::erase_if(seen, [](const auto& each) {
    return std::ranges::all_of(each.second, [&](const auto& hash) { return hash == each.second[0]; });
  });
  if (seen.empty()) return;
  std::vector<std::string> names;
  for (const auto& [name, hashes] : seen) names.push_back(name);
  const auto ok = std::ranges::find_if(report.findings, [](const Finding& each) { return !is_not_ok(each); });
  Finding found = about.finding(Severity::note, Verdict::mismatch, FindingKind::storage);
  found.message =
      fmt::format("{} differ in bytes that belong to no tensor or value: {}{}", about.words(found.ranks),
                  protocol::listed(names, kNamed), ok != report.findings.end() ? "; tensors and values are equal" : "");
  if (ok != report.findings.end())
    *ok = std::move(found);
  else
    report.findings.push_back(std::move(found));
}

/// Says of files that are a part of a checkpoint that this is so.
std::string parts_text(const std::vector<SavedReplica>& replicas, const std::vector<std::string>& names) {
  RankSet parts;
  for (size_t i = 0; i < replicas.size(); ++i)
    if (replicas[i].format == SavedFormat::checkpoint_part) parts.insert(static_cast<int>(i));
  if (parts.empty()) return "";
  const About about{.inspector = {}, .object = {}, .step = {}, .ranks = parts, .names = names};
  return fmt::format("{} {} of a checkpoint, and the rest of it is not compared: name its folder for all of it",
                     about.words(parts), parts.size() == 1 ? "is one file" : "are files");
}

/// Adds what the comparison has left out: at the end of an ok, which would cover it otherwise, or as a note.
void add_left_out(const std::vector<std::string>& left_out, const About& about, Report& report) {
  if (left_out.empty()) return;
  const std::string text = fmt::format("not compared: {}", fmt::join(left_out, ", "));
  const auto ok = std::ranges::find_if(report.findings, [](const Finding& each) { return !is_not_ok(each); });
  if (ok != report.findings.end()) {
    ok->message += "; " + text;
    return;
  }
  Finding found = about.finding(Severity::note, Verdict::unsupported);
  found.message = text;
  report.findings.push_back(std::move(found));
}

void add_renamed(const std::vector<std::string>& renamed, const About& about, Report& report) {
  for (const std::string& each : renamed) {
    Finding found = about.finding(Severity::note, Verdict::mismatch, FindingKind::attribute);
    found.message = each;
    report.findings.push_back(std::move(found));
  }
}

}  // namespace

std::vector<std::string> short_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& each : paths) {
    const std::filesystem::path path = std::filesystem::path(each).lexically_normal();
    names.push_back((path.has_filename() ? path : path.parent_path()).filename().string());
  }
  return std::set<std::string>(names.begin(), names.end()).size() == names.size() ? names : paths;
}

Report verify_files(const std::vector<std::string>& paths, const VerifyOptions& options) {
  if (paths.size() < 2) throw dist::ArgumentError("inspect::verify_files: needs two files or more");
  const std::vector<std::string> names = short_names(paths);
  std::vector<SavedReplica> replicas;
  ReadingLimit limit;  // of all together
  for (const std::string& path : paths) replicas.push_back(saved_replica(path, limit));
  const Alignment alignment = align(replicas, names);
  const std::string other_parts = parts_text(replicas, names);
  const RankSet all = RankSet::all(static_cast<int>(paths.size()));
  const About about{.inspector = "verify",
                    .object = options.name().empty() ? fmt::format("{} files", paths.size()) : options.name(),
                    .step = {},
                    .ranks = all,
                    .names = names};
  std::vector<Subject> subjects;
  for (size_t i = 0; i < replicas.size(); ++i) {
    if (replicas[i].items.empty())
      throw dist::ArgumentError(fmt::format("'{}' has nothing that the other files have", paths[i]));
    replicas[i].name = about.object;
    subjects.push_back(std::move(replicas[i]));
  }
  Report report = verify_here(subjects, all, VerifyOptions(options).publish(false), names);
  compare_unseen(subjects, about, report);
  add_left_out(alignment.left_out, about, report);
  for (Finding& each : report.findings)
    if (!is_not_ok(each) && !other_parts.empty()) each.message += "; " + other_parts;
  add_renamed(alignment.renamed, about, report);
  if (options.publish()) publish(report);
  return report;
}

}  // namespace lockstep::inspect
