#include "inspectors/hang_analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "dist/call_order.h"
#include "inspectors/hang_words.h"

namespace lockstep::inspect {
namespace {

using dist::CollectiveRecord;
using dist::LoggedGroup;

constexpr const char* kOneOrder =
    "All ranks of a group must make the same calls in the same order; where ranks use several groups, in one order "
    "over all of them";

const LoggedGroup* group_of(const RankPicture& rank, const std::string& name) {
  for (const LoggedGroup& group : rank.groups)
    if (group.name == name) return &group;
  return nullptr;
}

/// Whom a collective of `rank` can't end without.
struct Needs {
  RankSet ranks;
  bool any = false;  // one of them is enough
};

Needs needs_of(const RankPicture& rank, const RankWait& wait) {
  const CollectiveRecord& call = wait.call;
  if (!rank.has_log || !wait.missing.empty()) return {wait.missing};  // it has said so itself
  const LoggedGroup* group = group_of(rank, call.group);
  if (!group) return {};
  RankSet others;
  for (const int each : group->ranks)
    if (each != rank.rank) others.insert(each);
  if (call.point_to_point) return call.root < 0 ? Needs{others, true} : Needs{RankSet{call.root}};
  // Gloo does nothing for tensors without elements: no rank waits for another.
  if (call.bytes == 0 && call.tensor_count > 0) return {};
  if (call.op == "new_group") {  // members meet; its shape names them, the first eight
    RankSet members;
    for (const int64_t each : call.shape)
      if (each != rank.rank) members.insert(static_cast<int>(each));
    return {members};
  }
  const int first = group->ranks.empty() ? -1 : group->ranks.front();
  const int root = call.op == "monitored_barrier" ? first : call.root;
  if (root < 0) return {others};
  const bool from_root = call.op == "broadcast" || call.op == "scatter";
  const bool both_ways = call.op == "monitored_barrier";
  if (rank.rank == root) return from_root ? Needs{} : Needs{others};
  return from_root || both_ways ? Needs{RankSet{root}} : Needs{};
}

/// Whether `peer` has entered what `rank` waits in. Unknown counts as come.
bool has_come(const RankPicture& rank, const RankWait& wait, const RankPicture* peer) {
  if (!rank.has_log) return false;  // told so by the rank itself
  if (!peer || !peer->has_log) return true;
  const CollectiveRecord& call = wait.call;
  const LoggedGroup* group = group_of(*peer, call.group);
  if (!group || !group->member) return false;  // it has destroyed it
  if (!call.point_to_point) return group->entered >= call.seq;
  const auto takes_any = [&](const CollectiveRecord& each) {
    return each.group == call.group && each.op == "recv" && each.root < 0;
  };
  if (call.op == "send" && std::any_of(peer->recent.begin(), peer->recent.end(), takes_any)) return true;
  const auto& counts = call.op == "send" ? group->received : group->sent;
  const auto count = counts.find(rank.rank);
  return count != counts.end() && count->second >= call.seq;
}

bool has_left_group(const RankPicture& peer, const CollectiveRecord& call) {
  if (!peer.has_log) return false;
  const LoggedGroup* group = group_of(peer, call.group);
  return !group || !group->member;
}

class Analysis {
 public:
  explicit Analysis(const HangPicture& picture) : picture_(picture) {}

  RankSet missing(const RankPicture& rank, const RankWait& wait) const {
    RankSet result;
    for (const int each : needs_of(rank, wait).ranks)
      if (!has_come(rank, wait, picture_.rank(each))) result.insert(each);
    return result;
  }

  /// Of those, the ones that can't come whatever the others do.
  RankSet lost(const RankPicture& rank, const RankWait& wait) const {
    RankSet result;
    for (const int each : missing(rank, wait)) {
      const RankPicture* peer = picture_.rank(each);
      if (peer && (peer->gone() || has_left_group(*peer, wait.call))) result.insert(each);
    }
    return result;
  }

  /// The largest set of ranks, among `candidates`, that can't go on.
  RankSet stuck(RankSet candidates) const {
    for (bool changed = true; changed;) {
      changed = false;
      for (const int number : RankSet(candidates)) {
        const RankPicture& rank = *picture_.rank(number);
        if (std::any_of(rank.waits.begin(), rank.waits.end(),
                        [&](const RankWait& wait) { return may_end(rank, wait, candidates); })) {
          candidates = candidates - RankSet{number};
          changed = true;
        }
      }
    }
    return candidates;
  }

 private:
  bool may_end(const RankPicture& rank, const RankWait& wait, const RankSet& stuck) const {
    const Needs needs = needs_of(rank, wait);
    const RankSet missing = this->missing(rank, wait), never = lost(rank, wait) | (missing & stuck);
    return needs.any ? never != needs.ranks || needs.ranks.empty() : never.empty();
  }

  const HangPicture& picture_;
};

/// Whether the thread that runs cells is seen to wait for what the rank has entered.
bool is_waiting(const HangPicture& picture, const RankPicture& rank) {
  if (rank.gone() || rank.waits.empty()) return false;
  if (!rank.has_log) return true;  // it has said so
  // A rank whose other threads make collectives may be freed by one of them.
  for (const CollectiveRecord& record : rank.recent)
    if (record.cell == picture.cell && record.thread != 0 && record.thread != rank.main_thread) return false;
  if (rank.activity != Activity::unknown) return rank.activity == Activity::collective;
  return std::any_of(rank.waits.begin(), rank.waits.end(), [&](const RankWait& wait) {
    return !wait.call.async && !wait.call.point_to_point && wait.call.thread == rank.main_thread;
  });
}

/// Ranks that wait in one collective.
struct Meeting {
  RankSet waiting, missing, lost;
  const RankPicture* first = nullptr;  // the lowest of those that wait
  const RankWait* wait = nullptr;      // its
};
using Meetings = std::map<std::tuple<std::string, int64_t, std::string>, Meeting>;

Meetings meetings_of(const HangPicture& picture, const Analysis& analysis, const RankSet& stuck) {
  Meetings meetings;
  for (const int number : stuck) {
    const RankPicture& rank = *picture.rank(number);
    for (const RankWait& wait : rank.waits) {
      const std::string pair =
          wait.call.point_to_point ? fmt::format("{} {} {}", wait.call.op, rank.rank, wait.call.root) : std::string();
      Meeting& meeting = meetings[{wait.call.group, wait.call.seq, pair}];
      if (!meeting.first) meeting.first = &rank, meeting.wait = &wait;
      meeting.waiting.insert(number);
      meeting.missing = meeting.missing | analysis.missing(rank, wait);
      meeting.lost = meeting.lost | analysis.lost(rank, wait);
    }
  }
  return meetings;
}

/// Who has gone, by what became of them: "rank 1 has finished without entering it".
std::string lost_words(const HangPicture& picture, const Meeting& meeting) {
  std::map<std::string, RankSet> by_words;
  std::vector<std::string> order;
  for (const int number : meeting.lost) {
    const RankPicture& peer = *picture.rank(number);
    const std::string words = peer.gone() ? left_words(peer) : "{has} destroyed the group";
    if (!by_words.contains(words)) order.push_back(words);
    by_words[words].insert(number);
  }
  std::string text;
  for (const std::string& words : order)
    text += (text.empty() ? "" : ", ") + rank_words(by_words[words]) + " " + plural(words, by_words[words].size());
  return text;
}

const char* kind_of(const RankPicture& peer) {
  if (peer.place == RankPicture::Place::dead) return "died";
  if (peer.place == RankPicture::Place::elsewhere) return "not_in_cell";
  if (!peer.gone()) return "left_group";
  if (peer.how == "error") return "threw";
  if (peer.how == "interrupted" || peer.how == "aborted") return "stopped";
  return "finished";
}

/// A rank that is no member of the group, tried to use it, and threw.
const RankPicture* outsider(const HangPicture& picture, const CollectiveRecord& call) {
  for (const RankPicture& rank : picture.ranks)
    if (rank.place == RankPicture::Place::left && rank.how == "error" &&
        rank.error_type.find("ArgumentError") != std::string::npos &&
        rank.error_text.find("not in group " + call.group + " ") != std::string::npos)
      return &rank;
  return nullptr;
}

Finding finding_of(const Meeting& meeting) {
  Finding finding;
  finding.severity = Severity::fault;
  finding.inspector = "hang";
  finding.verdict = "hang";
  finding.op = dist::to_finding_op(meeting.wait->call);
  if (!meeting.wait->where.empty()) finding.where = meeting.wait->where;
  return finding;
}

std::string waits_in(const Meeting& meeting) {
  return fmt::format("{} {} in {}", rank_words(meeting.waiting), plural("{wait}", meeting.waiting.size()),
                     call_words(*meeting.wait));
}

/// Somebody has gone for whom others wait.
ProvenHang gone_hang(const HangPicture& picture, const Meeting& meeting, const std::string& consequences,
                     const RankSet& indirect) {
  ProvenHang hang;
  hang.waiting = meeting.waiting | indirect;
  hang.missing = meeting.lost;
  Finding& finding = hang.finding = finding_of(meeting);
  finding.ranks = meeting.lost;
  finding.reference_ranks = hang.waiting;
  finding.kind = kind_of(*picture.rank(meeting.lost.ranks().front()));
  if (std::all_of(meeting.lost.begin(), meeting.lost.end(),
                  [&](int number) { return picture.rank(number)->place == RankPicture::Place::dead; }))
    finding.verdict = "dead";
  finding.message = waits_in(meeting) + ", and " + lost_words(picture, meeting) + consequences;
  if (const RankPicture* rank = outsider(picture, meeting.wait->call)) {
    const LoggedGroup* group = group_of(*meeting.first, meeting.wait->call.group);
    finding.kind = "outside_group";
    finding.ranks = finding.ranks | RankSet{rank->rank};
    finding.message += fmt::format(
        "; rank {}, which is not in {}{}, tried to enter it and threw{}", rank->rank, meeting.wait->call.group,
        group ? " (ranks " + RankSet(group->ranks).str() + ")" : std::string(), in_brackets(rank->where));
  }
  const CollectiveRecord& call = meeting.wait->call;
  hang.key = fmt::format("{} {}", call.group, call.seq);
  if (call.point_to_point) hang.key += fmt::format(" {} {} {}", call.op, meeting.first->rank, call.root);
  return hang;
}

/// Ranks wait for one another, each in another collective.
ProvenHang crossed_hang(const std::vector<const Meeting*>& meetings) {
  RankSet all;
  const Meeting* largest = meetings.front();
  for (const Meeting* meeting : meetings) {
    all = all | meeting->waiting;
    if (meeting->waiting.size() > largest->waiting.size()) largest = meeting;
  }
  const bool majority = 2 * largest->waiting.size() > all.size();
  ProvenHang hang;
  hang.waiting = hang.missing = all;
  Finding& finding = hang.finding = finding_of(*largest);
  finding.kind = "other_collective";
  finding.ranks = majority ? all - largest->waiting : all;
  if (majority) finding.reference_ranks = largest->waiting;
  std::set<std::string> groups;
  for (const Meeting* meeting : meetings) {
    groups.insert(meeting->wait->call.group);
    finding.message += fmt::format("{}{} for {}", finding.message.empty() ? "" : ", and ", waits_in(*meeting),
                                   rank_words(meeting->missing & all));
    hang.key += fmt::format("{}{} {} {}", hang.key.empty() ? "" : "; ", meeting->wait->call.group,
                            meeting->wait->call.seq, meeting->waiting.str());
  }
  finding.message += fmt::format(": none of them can go on. {}", kOneOrder);
  return hang;
}

/// Ranks that called different things at the same place, where nobody compared them before.
std::vector<ProvenHang> mismatches(const HangPicture& picture) {
  std::vector<ProvenHang> hangs;
  std::set<std::pair<std::string, int64_t>> seen;
  for (const RankPicture& rank : picture.ranks) {
    if (rank.gone()) continue;
    for (const RankWait& wait : rank.waits) {
      if (wait.call.point_to_point || !rank.has_log) continue;
      if (!seen.insert({wait.call.group, wait.call.seq}).second) continue;
      std::vector<std::pair<RankSet, const CollectiveRecord*>> camps;
      std::map<const CollectiveRecord*, const RankPicture*> owners;
      for (const RankPicture& peer : picture.ranks)
        for (const CollectiveRecord& record : peer.recent) {
          if (record.group != wait.call.group || record.seq != wait.call.seq || record.point_to_point) continue;
          auto camp = std::find_if(camps.begin(), camps.end(),
                                   [&](const auto& each) { return dist::fit_together(*each.second, record); });
          if (camp == camps.end()) camp = camps.insert(camps.end(), {RankSet(), &record}), owners[&record] = &peer;
          camp->first.insert(peer.rank);
        }
      if (camps.size() < 2) continue;
      std::stable_sort(camps.begin(), camps.end(),
                       [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
      const auto& [few, odd] = camps.front();
      const auto& [many, usual] = camps.back();
      ProvenHang hang;
      Finding& finding = hang.finding;
      finding.severity = Severity::fault;
      finding.inspector = "hang";
      finding.verdict = odd->op != usual->op         ? "op_mismatch"
                        : odd->dtype != usual->dtype ? "dtype_mismatch"
                        : odd->shape != usual->shape ? "shape_mismatch"
                                                     : "op_mismatch";
      if (dist::order_mismatch(owners[usual]->recent, owners[odd]->recent, wait.call.group, wait.call.seq) ||
          dist::order_mismatch(owners[odd]->recent, owners[usual]->recent, wait.call.group, wait.call.seq))
        finding.verdict = "order_mismatch";
      RankSet all;
      for (const auto& [ranks, record] : camps) {
        all = all | ranks;
        finding.message += fmt::format("{}{} called {}{}", finding.message.empty() ? "" : ", ", rank_words(ranks),
                                       describe(*record), in_brackets(line_of(*owners[record], *record)));
      }
      const bool majority = 2 * many.size() > all.size();
      finding.ranks = majority ? all - many : all;
      if (majority) finding.reference_ranks = many;
      finding.op = dist::to_finding_op(*usual);
      if (const std::string line = line_of(*owners[odd], *odd); !line.empty()) finding.where = line;
      finding.message +=
          fmt::format(" as #{} of group {}{}. {}", wait.call.seq, wait.call.group,
                      finding.verdict == "order_mismatch" ? ": the same calls in another order" : "", kOneOrder);
      for (const RankPicture& each : picture.ranks)
        if (!each.gone() && std::any_of(each.waits.begin(), each.waits.end(), [&](const RankWait& w) {
              return w.call.group == wait.call.group && w.call.seq == wait.call.seq;
            }))
          hang.waiting.insert(each.rank);
      hang.missing = finding.ranks;
      hang.key = fmt::format("{} {}", wait.call.group, wait.call.seq);
      hangs.push_back(std::move(hang));
    }
  }
  return hangs;
}

}  // namespace

HangAnalysis analyse_hang(const HangPicture& picture) {
  const Analysis analysis(picture);
  RankSet waiting, entered;
  for (const RankPicture& rank : picture.ranks) {
    if (is_waiting(picture, rank)) waiting.insert(rank.rank);
    if (!rank.gone() && !rank.waits.empty()) entered.insert(rank.rank);
  }
  const RankSet stuck = analysis.stuck(waiting);
  HangAnalysis result;
  result.suspicious = analysis.stuck(entered) != stuck;
  result.proven = mismatches(picture);

  // Whoever waits for somebody that has gone, or for one that waits so, is explained by that.
  const Meetings meetings = meetings_of(picture, analysis, stuck);
  RankSet explained;
  std::map<int, int> through;  // rank → whom it waits for, on the way to one that has gone
  for (const auto& [key, meeting] : meetings)
    if (!meeting.lost.empty()) explained = explained | meeting.waiting;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [key, meeting] : meetings) {
      const RankSet via = meeting.missing & explained, fresh = meeting.waiting - explained;
      if (via.empty() || fresh.empty()) continue;
      for (const int rank : fresh) through[rank] = via.ranks().front();
      explained = explained | fresh;
      changed = true;
    }
  }
  const auto end_of = [&](int rank) {
    while (through.contains(rank)) rank = through.at(rank);
    return rank;
  };
  for (const auto& [key, meeting] : meetings) {
    if (meeting.lost.empty()) continue;
    RankSet indirect;
    std::string consequences;
    for (const auto& [other_key, other] : meetings) {
      RankSet ranks;
      for (const int rank : other.waiting)
        if (through.contains(rank) && meeting.waiting.contains(end_of(rank))) ranks.insert(rank);
      if (ranks.empty()) continue;
      indirect = indirect | ranks;
      consequences +=
          fmt::format("; because of that {} {} in {} for {}", rank_words(ranks), plural("{wait}", ranks.size()),
                      call_words(*other.wait), rank_words(other.missing & explained));
    }
    result.proven.push_back(gone_hang(picture, meeting, consequences, indirect));
  }

  // What is left goes round in circles.
  RankSet left = stuck - explained;
  while (!left.empty()) {
    RankSet component{left.ranks().front()};
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [key, meeting] : meetings) {
        const RankSet touched = (meeting.waiting | meeting.missing) & left;
        if ((touched & component).empty() || (touched - component).empty()) continue;
        component = component | touched;
        changed = true;
      }
    }
    std::vector<const Meeting*> circle;
    for (const auto& [key, meeting] : meetings)
      if (!(meeting.waiting & component).empty()) circle.push_back(&meeting);
    std::stable_sort(circle.begin(), circle.end(), [](const Meeting* a, const Meeting* b) {
      return a->waiting.ranks().front() < b->waiting.ranks().front();
    });
    result.proven.push_back(crossed_hang(circle));
    left = left - component;
  }
  return result;
}

RankSet waited_for(const HangPicture& picture, int rank) {
  const RankPicture* found = picture.rank(rank);
  RankSet result;
  if (!found || found->gone()) return result;
  for (const RankWait& wait : found->waits) result = result | Analysis(picture).missing(*found, wait);
  return result;
}

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
    finding.message += fmt::format("{}{}: {}", &sentence == &order.front() ? ": " : "; ", rank_words(ranks),
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
    const RankSet missing = Analysis(picture).missing(rank, wait);
    std::string text = wait.call.entered_ns > 0 && picture.now_ns > 0
                           ? fmt::format("waits {} in ", seconds_words(seconds))
                           : "waits in ";
    text += call_words(wait);
    if (missing.empty() && rank.has_log && !needs_of(rank, wait).ranks.empty())
      return text + ", which all have entered";
    return missing.empty() ? text : text + " for " + rank_words(missing);
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
