#include "inspectors/hang/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "inspectors/findings/about.h"
#include "inspectors/hang/aftermath.h"
#include "inspectors/hang/join.h"
#include "inspectors/hang/needs.h"
#include "inspectors/hang/words.h"

namespace lockstep::inspect {

namespace {

/// Whether the rank's thread waits in a collective, or for a device that is to do one.
bool waits_in_call(const RankPicture& rank) {
  if (rank.activity == FindingKind::device)
    return std::ranges::any_of(rank.waits, [](const RankWait& wait) { return wait.call.on_device; });
  return rank.activity == FindingKind::collective || (rank.activity == FindingKind::unknown && !rank.waits.empty());
}

/// Returns the call that a sentence about a waiting rank names.
const RankWait& shown_wait(const RankPicture& rank) {
  if (rank.activity == FindingKind::device)
    for (const RankWait& wait : rank.waits)
      if (wait.call.on_device) return wait;
  return rank.waits.front();
}

/// Returns "enqueued all_reduce #17 (cell 7, line 4) 3.1 s ago; its stream has not reached it (a kernel still runs)".
std::string enqueued_sentence(const HangPicture& picture, const RankPicture& rank, const RankWait& wait) {
  std::string text = "enqueued " + call_words(wait);
  if (wait.call.entered_ns > 0 && picture.now_ns > 0)
    text += fmt::format(" {} ago", seconds_words(static_cast<double>(picture.now_ns - wait.call.entered_ns) / 1e9));
  switch (wait.call.stage()) {
    case dist::CollectiveStage::waiting_for_stream:
      text += fmt::format("; its stream has not reached it ({})", before_words(rank.waits, wait.call));
      break;
    case dist::CollectiveStage::ready:
      text += "; its stream has reached it, and an earlier collective of the group is not done";
      break;
    default:
      text += "; whether its stream has reached it is not known";
  }
  if (const RankSet missing = missing_for(picture, rank, wait); !missing.empty())
    text += fmt::format("; {} {} not entered it", missing.words(), missing.size() == 1 ? "has" : "have");
  return text;
}

/// Returns "enqueued", "started on its device": after the name of a call.
std::string stage_in_words(const dist::CollectiveRecord& call) {
  switch (call.stage()) {
    case dist::CollectiveStage::waiting_for_stream:
      return "waiting for its stream";
    case dist::CollectiveStage::ready:
    case dist::CollectiveStage::enqueued:
      return "enqueued";
    default:
      return "started on its device";
  }
}

/// Whether all ranks of its group have made the call in which `rank` waits; of a message, the other rank.
bool all_have_entered(const HangPicture& picture, const RankPicture& rank, const RankWait& wait) {
  const dist::LoggedGroup* group = group_of(rank, wait.call.group);
  const RankSet needed = needs_of(rank, wait).ranks;
  if (!rank.has_log || !group || group->unnamed > 0 || needed.empty()) return false;
  return std::ranges::all_of(wait.call.point_to_point ? needed : RankSet(group->ranks), [&](int each) {
    return each == rank.rank || has_entered(rank, wait, picture.rank(each));
  });
}

bool has_started(const RankWait& wait) {
  return !wait.call.on_device || wait.call.stage() == dist::CollectiveStage::started;
}

}  // namespace

std::optional<Finding> stalled(const HangPicture& picture, double seconds) {
  RankSet in_collective, elsewhere, computing, missing;
  const RankPicture* first = nullptr;
  for (const RankPicture& rank : picture.ranks) {
    if (rank.gone()) continue;
    const bool waits = !rank.waits.empty() && waits_in_call(rank);
    (waits ? in_collective : elsewhere).insert(rank.rank);
    if (waits && !first) first = &rank;
    if (waits) missing = missing | waited_for(picture, rank.rank);
    if (!waits && (rank.activity == FindingKind::computing || rank.activity == FindingKind::unknown))
      computing.insert(rank.rank);
  }
  // Nobody waits any more, but ranks that have left the cell waited for ranks that are still in it.
  std::map<int, RankWait> left;
  if (in_collective.empty())
    for (const RankPicture& rank : picture.ranks)
      if (auto wait = wait_before_leaving(picture, rank)) {
        const RankSet awaited = missing_for(picture, rank, *wait) & elsewhere;
        if (awaited.empty()) continue;
        missing = missing | awaited;
        left.emplace(rank.rank, std::move(*wait));
      }
  // These are the ranks that others wait for; without any, all of them.
  const RankSet late = missing & elsewhere;
  if (in_collective.empty() && late.empty() && (elsewhere.empty() || !computing.empty())) return std::nullopt;
  // All have called it, and the device of a rank is busy with what that rank queued before: others wait for it.
  const RankSet unreached =
      first && late.empty() ? unreached_ranks(picture, shown_wait(*first).call) & in_collective : RankSet();
  const RankSet& ranks = !late.empty()        ? late
                         : !unreached.empty() ? unreached
                         : !elsewhere.empty() ? elsewhere
                                              : in_collective;
  const RankPicture& shown = *picture.rank(ranks.ranks().front());
  const FindingKind kind = ranks == unreached                   ? FindingKind::stream
                           : in_collective.contains(shown.rank) ? FindingKind::collective
                                                                : shown.activity;
  Finding finding = About{.inspector = "hang", .object = {}, .step = {}, .ranks = ranks}.finding(Severity::fault,
                                                                                                 Verdict::hang, kind);
  if (ranks != in_collective) finding.reference_ranks = in_collective - ranks;
  for (const auto& [rank, wait] : left) finding.reference_ranks.insert(rank);
  if (const RankWait* wait = first ? &shown_wait(*first) : !left.empty() ? &left.begin()->second : nullptr) {
    finding.op = dist::to_finding_op(wait->call);
    if (!wait->where.empty()) finding.where = wait->where;
  } else if (!shown.where.empty()) {
    finding.where = shown.where;
  }
  finding.message = fmt::format("no progress for {} s", seconds);
  RankSet present;
  for (const RankPicture& rank : picture.ranks)
    if (!rank.gone()) present.insert(rank.rank);
  finding.message += ": " + rank_sentences(picture, present);
  for (const auto& [rank, wait] : left)
    finding.message += fmt::format("; rank {} waited in {} before it left the cell", rank, call_words(wait));
  if (first) finding.message += evidence_words(picture, shown_wait(*first).call);
  return finding;
}

std::string rank_sentences(const HangPicture& picture, const RankSet& ranks) {
  std::vector<std::pair<std::string, RankSet>> said;
  for (const int rank : ranks) {
    std::string sentence = rank_sentence(picture, *picture.rank(rank));
    const auto same = std::ranges::find(said, sentence, &std::pair<std::string, RankSet>::first);
    if (same != said.end())
      same->second.insert(rank);
    else
      said.emplace_back(std::move(sentence), RankSet{rank});
  }
  std::string text;
  for (const auto& [sentence, who] : said)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", who.words(), said_of(sentence, who.size()));
  return text;
}

std::string rank_sentence(const HangPicture& picture, const RankPicture& rank) {
  if (rank.gone()) {
    const bool dead = rank.place == RankPicture::Place::dead;
    if (picture.cell == 0 && !dead) return "is idle";
    return rank.has_finished() ? "has finished the cell" : plural(left_words(rank), 1);
  }
  if (!rank.waits.empty() && waits_in_call(rank)) {
    const RankWait& wait = shown_wait(rank);
    if (!has_started(wait)) return enqueued_sentence(picture, rank, wait);
    const double seconds = static_cast<double>(picture.now_ns - wait.call.entered_ns) / 1e9;
    const RankSet missing = missing_for(picture, rank, wait);
    std::string text = wait.call.entered_ns > 0 && picture.now_ns > 0
                           ? fmt::format("waits {} in ", seconds_words(seconds))
                           : "waits in ";
    text += call_words(wait);
    if (wait.call.on_device) text += ", started on its device,";
    if (missing.empty() && all_have_entered(picture, rank, wait)) {
      text += wait.call.on_device ? " which all ranks have entered" : ", which all ranks have entered";
      if (const RankSet unreached = unreached_ranks(picture, wait.call); !unreached.empty())
        text += fmt::format("; the {} of {} {} not reached it", unreached.size() == 1 ? "stream" : "streams",
                            unreached.words(), unreached.size() == 1 ? "has" : "have");
      return text;
    }
    if (missing.empty() && wait.call.on_device) text.pop_back();  // the comma
    return missing.empty() ? text : text + " for " + missing.words();
  }
  std::string text = activity_words(rank.activity);
  if (const std::string place = code_place(rank.stack); !place.empty())
    text += (place.starts_with("cell ") ? " at " : " in ") + place;
  else if (!rank.where.empty())
    text += " at " + rank.where;
  if (!rank.waits.empty())
    text += ", with " + call_words(rank.waits.front()) + " " +
            (rank.waits.front().call.on_device ? stage_in_words(rank.waits.front().call) : "in progress");
  return text;
}

}  // namespace lockstep::inspect
