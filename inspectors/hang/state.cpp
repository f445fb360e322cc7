#include "inspectors/hang/state.h"

#include <fmt/format.h>

#include <map>

#include "inspectors/hang/needs.h"
#include "inspectors/hang/words.h"

namespace lockstep::inspect {

std::optional<Finding> stalled(const HangPicture& picture, double seconds) {
  RankSet sitting, elsewhere, computing, missing;
  const RankPicture* first = nullptr;
  for (const RankPicture& rank : picture.ranks) {
    if (rank.gone()) continue;
    const bool sits =
        !rank.waits.empty() && (rank.activity == Activity::collective || rank.activity == Activity::unknown);
    (sits ? sitting : elsewhere).insert(rank.rank);
    if (sits && !first) first = &rank;
    if (sits) missing = missing | waited_for(picture, rank.rank);
    if (!sits && (rank.activity == Activity::computing || rank.activity == Activity::unknown))
      computing.insert(rank.rank);
  }
  if (sitting.empty() && (elsewhere.empty() || !computing.empty())) return std::nullopt;
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "hang";
  finding.verdict = "hang";
  // Those who keep the others waiting; where nobody does, all of them.
  const RankSet late = missing & elsewhere;
  finding.ranks = !late.empty() ? late : !elsewhere.empty() ? elsewhere : sitting;
  if (finding.ranks != sitting) finding.reference_ranks = sitting;
  const RankPicture& shown = *picture.rank(finding.ranks.ranks().front());
  finding.kind = sitting.contains(shown.rank)            ? "collective"
                 : shown.activity == Activity::computing ? "computing"
                                                         : activity_name(shown.activity);
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
    const RankSet& ranks = by_sentence[sentence];
    finding.message += fmt::format("{}{}: {}", &sentence == &order.front() ? ": " : "; ", ranks.words(),
                                   said_of(sentence, ranks.size()));
  }
  return finding;
}

std::string rank_sentence(const HangPicture& picture, const RankPicture& rank) {
  if (rank.gone()) {
    const bool dead = rank.place == RankPicture::Place::dead;
    if (picture.cell == 0 && !dead) return "is idle";
    return rank.place == RankPicture::Place::left && rank.how == "ok" ? "has finished the cell"
                                                                      : plural(left_words(rank), 1);
  }
  const bool sits =
      rank.activity == Activity::collective || (rank.activity == Activity::unknown && !rank.waits.empty());
  if (sits && !rank.waits.empty()) {
    const RankWait& wait = rank.waits.front();
    const double seconds = static_cast<double>(picture.now_ns - wait.call.entered_ns) / 1e9;
    const RankSet missing = missing_for(picture, rank, wait);
    std::string text = wait.call.entered_ns > 0 && picture.now_ns > 0
                           ? fmt::format("waits {} in ", seconds_words(seconds))
                           : "waits in ";
    text += call_words(wait);
    if (missing.empty() && rank.has_log && !needs_of(rank, wait).ranks.empty())
      return text + ", which all have entered";
    return missing.empty() ? text : text + " for " + missing.words();
  }
  std::string text = activity_words(rank.activity);
  if (const std::string place = code_place(rank.stack); !place.empty())
    text += (place.starts_with("cell ") ? " at " : " in ") + place;
  else if (!rank.where.empty())
    text += " at " + rank.where;
  if (!rank.waits.empty()) text += ", with " + call_words(rank.waits.front()) + " under way";
  return text;
}

}  // namespace lockstep::inspect
