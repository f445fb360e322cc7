#include "inspectors/hang/state.h"

#include <fmt/format.h>

#include <map>

#include "inspectors/findings/about.h"
#include "inspectors/hang/needs.h"
#include "inspectors/hang/words.h"

namespace lockstep::inspect {

std::optional<Finding> stalled(const HangPicture& picture, double seconds) {
  RankSet in_collective, elsewhere, computing, missing;
  const RankPicture* first = nullptr;
  for (const RankPicture& rank : picture.ranks) {
    if (rank.gone()) continue;
    const bool waits =
        !rank.waits.empty() && (rank.activity == Activity::collective || rank.activity == Activity::unknown);
    (waits ? in_collective : elsewhere).insert(rank.rank);
    if (waits && !first) first = &rank;
    if (waits) missing = missing | waited_for(picture, rank.rank);
    if (!waits && (rank.activity == Activity::computing || rank.activity == Activity::unknown))
      computing.insert(rank.rank);
  }
  if (in_collective.empty() && (elsewhere.empty() || !computing.empty())) return std::nullopt;
  // The ranks that others wait for; without any, all of them.
  const RankSet late = missing & elsewhere;
  const RankSet& ranks = !late.empty() ? late : !elsewhere.empty() ? elsewhere : in_collective;
  const RankPicture& shown = *picture.rank(ranks.ranks().front());
  const FindingKind kind =
      in_collective.contains(shown.rank) ? FindingKind::collective : kind_of_activity(shown.activity);
  Finding finding = About{.inspector = "hang", .object = {}, .step = {}, .ranks = ranks}.finding(Severity::fault,
                                                                                                 Verdict::hang, kind);
  if (ranks != in_collective) finding.reference_ranks = in_collective;
  if (first) {
    finding.op = dist::to_finding_op(first->waits.front().call);
    if (!first->waits.front().where.empty()) finding.where = first->waits.front().where;
  } else if (!shown.where.empty()) {
    finding.where = shown.where;
  }
  finding.message = fmt::format("no progress for {} s", seconds);
  std::map<std::string, RankSet> by_sentence;
  std::vector<std::string> order;
  for (const RankPicture& rank : picture.ranks) {
    if (rank.gone()) continue;
    const std::string sentence = rank_sentence(picture, rank);
    if (!by_sentence.contains(sentence)) order.push_back(sentence);
    by_sentence[sentence].insert(rank.rank);
  }
  for (const std::string& sentence : order) {
    const RankSet& who = by_sentence[sentence];
    finding.message +=
        fmt::format("{}{}: {}", &sentence == &order.front() ? ": " : "; ", who.words(), said_of(sentence, who.size()));
  }
  return finding;
}

std::string rank_sentence(const HangPicture& picture, const RankPicture& rank) {
  if (rank.gone()) {
    const bool dead = rank.place == RankPicture::Place::dead;
    if (picture.cell == 0 && !dead) return "is idle";
    return rank.has_finished() ? "has finished the cell" : plural(left_words(rank), 1);
  }
  const bool waits =
      rank.activity == Activity::collective || (rank.activity == Activity::unknown && !rank.waits.empty());
  if (waits && !rank.waits.empty()) {
    const RankWait& wait = rank.waits.front();
    const double seconds = static_cast<double>(picture.now_ns - wait.call.entered_ns) / 1e9;
    const RankSet missing = missing_for(picture, rank, wait);
    std::string text = wait.call.entered_ns > 0 && picture.now_ns > 0
                           ? fmt::format("waits {} in ", seconds_words(seconds))
                           : "waits in ";
    text += call_words(wait);
    if (missing.empty() && rank.has_log && !needs_of(rank, wait).ranks.empty())
      return text + ", which all ranks have entered";
    return missing.empty() ? text : text + " for " + missing.words();
  }
  std::string text = activity_words(rank.activity);
  if (const std::string place = code_place(rank.stack); !place.empty())
    text += (place.starts_with("cell ") ? " at " : " in ") + place;
  else if (!rank.where.empty())
    text += " at " + rank.where;
  if (!rank.waits.empty()) text += ", with " + call_words(rank.waits.front()) + " in progress";
  return text;
}

}  // namespace lockstep::inspect
