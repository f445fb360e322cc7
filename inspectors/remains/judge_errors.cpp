#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "inspectors/remains/call_words.h"
#include "inspectors/remains/judges.h"
#include "inspectors/remains/rank_errors.h"

namespace lockstep::inspect::judging {
namespace {

using Errors = std::vector<const RankError*>;

std::map<std::string, Errors> by_message(const Case& job, bool (*is_meant)(const RankError&)) {
  std::map<std::string, Errors> alike;
  for (const RankError& each : job.remains.errors)
    if (is_meant(each)) alike[each.message].push_back(&each);
  return alike;
}

RankSet ranks_of(const Errors& errors) {
  RankSet ranks;
  for (const RankError* each : errors)
    if (each->rank >= 0) ranks.insert(each->rank);
  return ranks;
}

void add_error(Verdicts& verdicts, bool is_consequence, const Errors& errors) {
  const RankSet ranks = ranks_of(errors);
  int64_t first = 0;
  const RankError* shown = errors.front();
  for (const RankError* each : errors) {
    if (each->time_s > 0 && (first == 0 || each->time_s < first)) first = each->time_s;
    if (shown->frames.empty() && !each->frames.empty()) shown = each;
  }
  Finding finding =
      about().finding(is_consequence ? Severity::note : Severity::fault, Verdict::dead, FindingKind::threw);
  finding.ranks = ranks;
  finding.where = shown->frames.empty() ? std::nullopt : std::optional(place(shown->frames));
  const std::string who = ranks.empty() ? shown->origin + ": a rank" : ranks.words();
  finding.message =
      fmt::format("{} {} {}{}{}", who, shown->type == "Fatal Python error" ? "died of" : "raised", shown->type,
                  shown->message.empty() ? "" : ": " + shown->message, in_brackets(place(shown->frames)));
  if (is_consequence) finding.message += "; that follows from another rank's end or absence";
  verdicts.add(is_consequence ? Weight::consequence : Weight::exception, std::move(finding), first);
}

}  // namespace

void judge_errors(const Case& job, Verdicts& verdicts) {
  // Equal exceptions of several ranks are one finding.
  using Key = std::tuple<bool, std::string, std::string>;
  std::map<Key, Errors> alike;
  for (const RankError& each : job.remains.errors) {
    if (is_mismatch(each) || is_size_mismatch(each)) continue;
    const Key key{is_consequence(each), each.type, each.message};
    Errors& same = alike[key];
    // An error file and a log have the same exception.
    const bool known =
        each.rank >= 0 && std::ranges::any_of(same, [&](const RankError* other) { return other->rank == each.rank; });
    if (!known) same.push_back(&each);
  }
  for (const auto& [key, errors] : alike) add_error(verdicts, std::get<bool>(key), errors);
}

void judge_mismatch_errors(const Case& job, Verdicts& verdicts) {
  if (verdicts.has(Weight::mismatch)) return;
  for (const auto& [message, errors] : by_message(job, is_mismatch)) {
    Finding finding = about().finding(Severity::fault, Verdict::op_mismatch);
    finding.inspector = kComparison;
    finding.ranks = ranks_of(errors);
    if (!errors.front()->frames.empty()) finding.where = place(errors.front()->frames);
    finding.message = message;
    verdicts.add(Weight::mismatch, std::move(finding), errors.front()->time_s);
  }
}

void judge_size_mismatches(const Case& job, Verdicts& verdicts) {
  const bool is_named = verdicts.has(Weight::mismatch);
  for (const auto& [message, errors] : by_message(job, is_size_mismatch)) {
    Finding finding = about().finding(is_named ? Severity::note : Severity::fault, Verdict::op_mismatch);
    finding.ranks = ranks_of(errors);
    finding.message = fmt::format(
        "{} got more bytes than its collective takes ({}: {}): {}. The backend `lockstep` compares calls before data "
        "moves, and names both sides: init_process_group(\"lockstep\")",
        finding.ranks.empty() ? errors.front()->origin + ": a rank" : finding.ranks.words(), errors.front()->type,
        message, is_named ? "that follows from the calls below" : "ranks have called different collectives or sizes");
    verdicts.add(is_named ? Weight::consequence : Weight::mismatch, std::move(finding), errors.front()->time_s);
  }
}

}  // namespace lockstep::inspect::judging
