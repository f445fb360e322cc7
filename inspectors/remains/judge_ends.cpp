#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "inspectors/remains/call_words.h"
#include "inspectors/remains/judges.h"
#include "inspectors/remains/rank_errors.h"

namespace lockstep::inspect::judging {
namespace {

std::string plural_of(const std::string& words) {
  constexpr std::string_view kAfter = "has finished, and its process was ";
  if (words.starts_with(kAfter)) return "have finished, and their processes were " + words.substr(kAfter.size());
  if (words.starts_with("has ")) return "have " + words.substr(4);
  return words.starts_with("was ") ? "were " + words.substr(4) : words;
}

/// Finds ranks that have finished while others were in a collective with them: transports raise an error there. Returns
/// them; how their processes ended follows from that.
RankSet look_at_departures(const Case& job, Verdicts& verdicts) {
  RankSet finished, broken;
  int64_t first = 0;
  const RankError* shown = nullptr;
  for (const RankDoing& each : job.remains.doing)
    if (each.ended && each.kind == FindingKind::finished) {
      finished.insert(each.rank);
      if (each.time_s > 0 && (first == 0 || each.time_s < first)) first = each.time_s;
    }
  for (const RankError& each : job.remains.errors) {
    if (!is_consequence(each)) return {};  // that one explains them
    if (each.rank < 0) continue;
    broken.insert(each.rank);
    if (!shown || shown->frames.empty()) shown = &each;
  }
  const bool died = std::ranges::any_of(
      job.remains.doing, [](const RankDoing& each) { return each.at_fault && each.kind != FindingKind::finished; });
  const bool known = verdicts.has_fault(FindingKind::finished);
  if (finished.empty() || broken.empty() || died || known) return {};
  Finding finding = about().finding(Severity::fault, Verdict::hang, FindingKind::finished);
  finding.ranks = finished;
  finding.reference_ranks = broken;
  if (!shown->frames.empty()) finding.where = place(shown->frames);
  finding.message =
      fmt::format("{} {} finished, and {} {} still in a collective with {}{}", finished.words(),
                  finished.size() == 1 ? "has" : "have", broken.words(), broken.size() == 1 ? "was" : "were",
                  finished.size() == 1 ? "it" : "them", in_brackets(place(shown->frames)));
  verdicts.add(Weight::stuck, std::move(finding), first);
  return finished;
}

/// Finds processes that were killed, or left without an exception.
void look_at_deaths(const Case& job, Verdicts& verdicts, const RankSet& departed) {
  std::map<std::string, std::vector<const RankDoing*>> alike;
  for (const RankDoing& each : job.remains.doing)
    if (each.at_fault && !departed.contains(each.rank)) alike[each.words].push_back(&each);
  for (const auto& [words, deaths] : alike) {
    Finding finding = about().finding(Severity::fault, Verdict::dead, FindingKind::died);
    int64_t first = 0;
    for (const RankDoing* each : deaths) {
      finding.ranks.insert(each->rank);
      if (each->time_s > 0 && (first == 0 || each->time_s < first)) first = each->time_s;
    }
    finding.message = finding.ranks.words() + " " + (deaths.size() == 1 ? words : plural_of(words));
    const int rank = finding.ranks.ranks().front();
    if (const std::string last = job.last_call(rank); !last.empty())
      finding.message +=
          fmt::format("; {} last collective is {}", deaths.size() == 1 ? "its" : fmt::format("rank {}'s", rank), last);
    // Transports abort the process that gets more bytes than it expects.
    const bool follows = words.find("SIGABRT") != std::string::npos && verdicts.has(Weight::mismatch);
    if (follows) finding.severity = Severity::note;
    verdicts.add(follows ? Weight::consequence : Weight::exception, std::move(finding), first);
  }
}

}  // namespace

void judge_ends(const Case& job, Verdicts& verdicts) {
  const RankSet departed = look_at_departures(job, verdicts);
  look_at_deaths(job, verdicts, departed);
}

}  // namespace lockstep::inspect::judging
