#include "inspectors/hang/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "inspectors/hang/aftermath.h"
#include "inspectors/hang/mismatch.h"
#include "inspectors/hang/needs.h"
#include "inspectors/hang/words.h"

namespace lockstep::inspect {
namespace {

using dist::CollectiveRecord;
using dist::LoggedGroup;

/// Whether the thread that runs cells is seen to wait for what the rank has entered.
bool is_waiting(const HangPicture& picture, const RankPicture& rank) {
  if (rank.gone() || rank.waits.empty()) return false;
  if (!rank.has_log || rank.waits.front().broken) return true;  // it has said so
  // A rank whose other threads make collectives may be freed by one of them.
  for (const CollectiveRecord& record : rank.recent)
    if (record.cell == picture.cell && record.thread != 0 && record.thread != rank.main_thread) return false;
  if (rank.activity != Activity::unknown) return rank.activity == Activity::collective;
  return std::any_of(rank.waits.begin(), rank.waits.end(),
                     [&](const RankWait& wait) { return !wait.call.async && wait.call.thread == rank.main_thread; });
}

/// Ranks that wait in one collective.
struct Meeting {
  RankSet waiting, missing, lost;
  const RankPicture* first = nullptr;  // the lowest of those that wait
  const RankWait* wait = nullptr;      // its
};
using Meetings = std::map<std::tuple<std::string, int64_t, std::string>, Meeting>;

Meetings meetings_of(const HangPicture& picture, const RankSet& stuck) {
  Meetings meetings;
  for (const int number : stuck) {
    const RankPicture& rank = *picture.rank(number);
    for (const RankWait& wait : rank.waits) {
      const std::string pair =
          wait.call.point_to_point ? fmt::format("{} {} {}", wait.call.op, rank.rank, wait.call.root) : std::string();
      Meeting& meeting = meetings[{wait.call.group, wait.call.seq, pair}];
      if (!meeting.first) meeting.first = &rank, meeting.wait = &wait;
      meeting.waiting.insert(number);
      meeting.missing = meeting.missing | missing_for(picture, rank, wait);
      meeting.lost = meeting.lost | lost_for(picture, rank, wait);
    }
  }
  return meetings;
}

/// It went on without the group that others wait in.
bool only_left_group(const RankPicture& peer, const CollectiveRecord& call) {
  return has_left_group(peer, call) && (!peer.gone() || (peer.place == RankPicture::Place::left && peer.how == "ok"));
}

/// Who has gone, by what became of them: "rank 1 has finished without entering it".
std::string lost_words(const HangPicture& picture, const Meeting& meeting) {
  std::map<std::string, RankSet> by_words;
  std::vector<std::string> order;
  for (const int number : meeting.lost) {
    const RankPicture& peer = *picture.rank(number);
    const std::string words =
        only_left_group(peer, meeting.wait->call) ? "{has} destroyed the group" : left_words(peer);
    if (!by_words.contains(words)) order.push_back(words);
    by_words[words].insert(number);
  }
  std::string text;
  for (const std::string& words : order)
    text += (text.empty() ? "" : ", ") + by_words[words].words() + " " + plural(words, by_words[words].size());
  return text;
}

const char* kind_of(const RankPicture& peer, const CollectiveRecord& call) {
  if (peer.place == RankPicture::Place::dead) return "died";
  if (peer.place == RankPicture::Place::elsewhere) return "not_in_cell";
  if (only_left_group(peer, call)) return "left_group";
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
  return fmt::format("{} {} in {}", meeting.waiting.words(),
                     meeting.wait->broken ? "waited" : plural("{wait}", meeting.waiting.size()),
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
  finding.reference_ranks = hang.waiting - meeting.lost;
  finding.kind = kind_of(*picture.rank(meeting.lost.ranks().front()), meeting.wait->call);
  hang.consequence = std::any_of(meeting.lost.begin(), meeting.lost.end(), [&](int number) {
    const RankPicture& peer = *picture.rank(number);
    return peer.how == "error" && peer.error_type.ends_with("CollectiveMismatch");
  });
  if (std::all_of(meeting.lost.begin(), meeting.lost.end(),
                  [&](int number) { return picture.rank(number)->place == RankPicture::Place::dead; }))
    finding.verdict = "dead";
  finding.message = waits_in(meeting) + ", and " + lost_words(picture, meeting) + consequences;
  // Of a rank that came to the end all the same: since then its calls need not be those that the others make.
  for (const int number : meeting.lost)
    if (const RankPicture& peer = *picture.rank(number); peer.place == RankPicture::Place::left && peer.how == "ok")
      finding.message += caught_words(peer, meeting.wait->call);
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

/// A send and a recv between the same two ranks that are to be one message, but for their tags.
struct TagPair {
  const RankWait* sent = nullptr;
  const RankWait* received = nullptr;
};
TagPair tags_that_differ(const std::vector<const Meeting*>& meetings) {
  for (const Meeting* sends : meetings)
    for (const Meeting* receives : meetings) {
      const CollectiveRecord &send = sends->wait->call, &recv = receives->wait->call;
      if (dist::is_send(send) && dist::is_recv(recv) && send.group == recv.group && send.tag != recv.tag &&
          send.root == receives->first->rank && recv.root == sends->first->rank)
        return {sends->wait, receives->wait};
    }
  return {};
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
                                   (meeting->missing & all).words());
    hang.key += fmt::format("{}{} {} {}", hang.key.empty() ? "" : "; ", meeting->wait->call.group,
                            meeting->wait->call.seq, meeting->waiting.str());
  }
  const TagPair tags = tags_that_differ(meetings);
  if (tags.sent) {
    finding.kind = "tag";
    finding.message += fmt::format(
        ": the tags {} and {} do not match, so that the message is never received. A recv gets what was sent with its "
        "tag only",
        tags.sent->call.tag, tags.received->call.tag);
    return hang;
  }
  finding.message += fmt::format(": none of them can go on. {}", kOneOrder);
  return hang;
}

}  // namespace

HangAnalysis analyse_hang(const HangPicture& seen) {
  const std::optional<HangPicture> before = put_back(seen);
  const HangPicture& picture = before ? *before : seen;
  RankSet waiting, entered;
  for (const RankPicture& rank : picture.ranks) {
    if (is_waiting(picture, rank)) waiting.insert(rank.rank);
    if (!rank.gone() && !rank.waits.empty()) entered.insert(rank.rank);
  }
  const RankSet stuck = stuck_ranks(picture, waiting);
  HangAnalysis result;
  result.suspicious = stuck_ranks(picture, entered) != stuck;
  result.proven = mismatched_calls(picture);

  // Whoever waits for somebody that has gone, or for one that waits so, is explained by that.
  const Meetings meetings = meetings_of(picture, stuck);
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
      consequences += fmt::format("; because of that {} {} in {} for {}", ranks.words(), plural("{wait}", ranks.size()),
                                  call_words(*other.wait), (other.missing & explained).words());
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

}  // namespace lockstep::inspect
