#include "inspectors/hang/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "inspectors/findings/about.h"
#include "inspectors/findings/text.h"
#include "inspectors/hang/aftermath.h"
#include "inspectors/hang/join.h"
#include "inspectors/hang/mismatch.h"
#include "inspectors/hang/needs.h"
#include "inspectors/hang/words.h"

namespace lockstep::inspect {
namespace {

using dist::CollectiveRecord;
using dist::LoggedGroup;

/// Whether the thread that runs cells waits in a collective that the rank has entered.
bool is_waiting(const HangPicture& picture, const RankPicture& rank) {
  if (rank.gone() || rank.waits.empty()) return false;
  if (!rank.has_log || rank.waits.front().broken) return true;  // the rank reported the wait itself
  // Other threads that call collectives may end the wait.
  for (const CollectiveRecord& record : rank.recent)
    if (record.cell == picture.cell && record.thread != 0 && record.thread != rank.main_thread) return false;
  // A call on a device returns at once; the thread waits for the device when it needs a value.
  if (rank.activity == Activity::device)
    return std::ranges::any_of(rank.waits, [](const RankWait& wait) { return wait.call.on_device; });
  if (rank.activity != Activity::unknown) return rank.activity == Activity::collective;
  return std::any_of(rank.waits.begin(), rank.waits.end(), [&](const RankWait& wait) {
    return !wait.call.async && !wait.call.on_device && wait.call.thread == rank.main_thread;
  });
}

/// A collective in which ranks wait.
struct StuckCall {
  RankSet waiting, missing, lost;
  const RankPicture* first = nullptr;  // the lowest waiting rank
  const RankWait* wait = nullptr;      // its wait
};
using StuckCalls = std::map<std::tuple<std::string, int64_t, std::string>, StuckCall>;

StuckCalls stuck_calls_of(const HangPicture& picture, const RankSet& stuck) {
  StuckCalls stuck_calls;
  for (const int number : stuck) {
    const RankPicture& rank = *picture.rank(number);
    for (const RankWait& wait : rank.waits) {
      const std::string pair =
          wait.call.point_to_point ? fmt::format("{} {} {}", wait.call.op, rank.rank, wait.call.root) : std::string();
      StuckCall& stuck_call = stuck_calls[{wait.call.group, wait.call.seq, pair}];
      if (!stuck_call.first) stuck_call.first = &rank, stuck_call.wait = &wait;
      stuck_call.waiting.insert(number);
      stuck_call.missing = stuck_call.missing | missing_for(picture, rank, wait);
      stuck_call.lost = stuck_call.lost | lost_for(picture, rank, wait);
    }
  }
  return stuck_calls;
}

/// Whether `peer` destroyed the group in which others wait, and did not fail.
bool only_left_group(const RankPicture& peer, const CollectiveRecord& call) {
  return has_left_group(peer, call) && (!peer.gone() || peer.has_finished());
}

/// The ranks that are gone, with the reason: "rank 1 has finished without entering it".
std::string lost_words(const HangPicture& picture, const StuckCall& stuck_call) {
  std::map<std::string, RankSet> by_words;
  std::vector<std::string> order;
  for (const int number : stuck_call.lost) {
    const RankPicture& peer = *picture.rank(number);
    const std::string words =
        only_left_group(peer, stuck_call.wait->call) ? "{has} destroyed the group" : left_words(peer);
    if (!by_words.contains(words)) order.push_back(words);
    by_words[words].insert(number);
  }
  std::string text;
  for (const std::string& words : order)
    text += (text.empty() ? "" : ", ") + by_words[words].words() + " " + plural(words, by_words[words].size());
  return text;
}

FindingKind kind_of(const RankPicture& peer, const CollectiveRecord& call) {
  if (peer.place == RankPicture::Place::dead) return FindingKind::died;
  if (peer.place == RankPicture::Place::elsewhere) return FindingKind::not_in_cell;
  if (only_left_group(peer, call)) return FindingKind::left_group;
  if (peer.how == CellStatus::error) return FindingKind::threw;
  if (peer.how == CellStatus::interrupted || peer.how == CellStatus::aborted) return FindingKind::stopped;
  return FindingKind::finished;
}

/// A rank that is not in the group, tried to use it, and threw.
const RankPicture* outsider(const HangPicture& picture, const CollectiveRecord& call) {
  for (const RankPicture& rank : picture.ranks)
    if (rank.place == RankPicture::Place::left && rank.how == CellStatus::error &&
        rank.error_type.find("ArgumentError") != std::string::npos &&
        rank.error_text.find("not in group " + call.group + " ") != std::string::npos)
      return &rank;
  return nullptr;
}

Finding finding_of(const StuckCall& stuck_call, Verdict verdict, FindingKind kind) {
  Finding finding =
      About{.inspector = "hang", .object = {}, .step = {}, .ranks = {}}.finding(Severity::fault, verdict, kind);
  finding.op = dist::to_finding_op(stuck_call.wait->call);
  if (!stuck_call.wait->where.empty()) finding.where = stuck_call.wait->where;
  return finding;
}

std::string waits_in(const StuckCall& stuck_call) {
  return fmt::format("{} {} in {}", stuck_call.waiting.words(),
                     stuck_call.wait->broken ? "waited" : plural("{wait}", stuck_call.waiting.size()),
                     call_words(*stuck_call.wait));
}

/// Ranks wait for ranks that are gone.
ProvenHang gone_hang(const HangPicture& picture, const StuckCall& stuck_call, const std::string& consequences,
                     const RankSet& indirect) {
  ProvenHang hang;
  hang.waiting = stuck_call.waiting | indirect;
  hang.missing = stuck_call.lost;
  const bool all_dead = std::ranges::all_of(
      stuck_call.lost, [&](int number) { return picture.rank(number)->place == RankPicture::Place::dead; });
  Finding& finding = hang.finding =
      finding_of(stuck_call, all_dead ? Verdict::dead : Verdict::hang,
                 kind_of(*picture.rank(stuck_call.lost.ranks().front()), stuck_call.wait->call));
  finding.ranks = stuck_call.lost;
  finding.reference_ranks = hang.waiting - stuck_call.lost;
  hang.consequence = std::ranges::any_of(stuck_call.lost, [&](int number) {
    const RankPicture& peer = *picture.rank(number);
    return peer.how == CellStatus::error && peer.error_type.ends_with("CollectiveMismatch");
  });
  finding.message = waits_in(stuck_call) + ", and " + lost_words(picture, stuck_call) + consequences;
  if (const std::string stages = stages_words(picture, stuck_call.wait->call); !stages.empty())
    finding.message += "; " + stages;
  // A rank that caught an exception and finished may have skipped calls.
  for (const int number : stuck_call.lost)
    if (const RankPicture& peer = *picture.rank(number); peer.has_finished())
      finding.message += caught_words(peer, stuck_call.wait->call);
  if (const RankPicture* rank = outsider(picture, stuck_call.wait->call)) {
    const LoggedGroup* group = group_of(*stuck_call.first, stuck_call.wait->call.group);
    finding.kind = FindingKind::outside_group;
    finding.ranks = finding.ranks | RankSet{rank->rank};
    finding.message += fmt::format(
        "; rank {}, which is not in {}{}, tried to enter it and threw{}", rank->rank, stuck_call.wait->call.group,
        group ? " (ranks " + RankSet(group->ranks).str() + ")" : std::string(), in_brackets(rank->where));
  }
  const CollectiveRecord& call = stuck_call.wait->call;
  finding.message += evidence_words(picture, call);
  hang.key = fmt::format("{} {}", call.group, call.seq);
  if (call.point_to_point) hang.key += fmt::format(" {} {} {}", call.op, stuck_call.first->rank, call.root);
  return hang;
}

/// A send and a recv between the same two ranks that differ only in their tags.
struct TagPair {
  const RankWait* sent = nullptr;
  const RankWait* received = nullptr;
};
TagPair tags_that_differ(const std::vector<const StuckCall*>& stuck_calls) {
  for (const StuckCall* sends : stuck_calls)
    for (const StuckCall* receives : stuck_calls) {
      const CollectiveRecord &send = sends->wait->call, &recv = receives->wait->call;
      if (dist::is_send(send) && dist::is_recv(recv) && send.group == recv.group && send.tag != recv.tag &&
          send.root == receives->first->rank && recv.root == sends->first->rank)
        return {sends->wait, receives->wait};
    }
  return {};
}

/// Ranks wait for one another, in different collectives.
ProvenHang crossed_hang(const HangPicture& picture, const std::vector<const StuckCall*>& stuck_calls) {
  RankSet all;
  const StuckCall* largest = stuck_calls.front();
  for (const StuckCall* stuck_call : stuck_calls) {
    all = all | stuck_call->waiting;
    if (stuck_call->waiting.size() > largest->waiting.size()) largest = stuck_call;
  }
  const bool majority = 2 * largest->waiting.size() > all.size();
  const TagPair tags = tags_that_differ(stuck_calls);
  ProvenHang hang;
  hang.waiting = hang.missing = all;
  Finding& finding = hang.finding =
      finding_of(*largest, Verdict::hang, tags.sent ? FindingKind::tag : FindingKind::other_collective);
  finding.ranks = majority ? all - largest->waiting : all;
  if (majority) finding.reference_ranks = largest->waiting;
  std::set<std::string> groups;
  for (const StuckCall* stuck_call : stuck_calls) {
    groups.insert(stuck_call->wait->call.group);
    finding.message += fmt::format("{}{} for {}", finding.message.empty() ? "" : ", and ", waits_in(*stuck_call),
                                   (stuck_call->missing & all).words());
    hang.key += fmt::format("{}{} {} {}", hang.key.empty() ? "" : "; ", stuck_call->wait->call.group,
                            stuck_call->wait->call.seq, stuck_call->waiting.str());
  }
  if (tags.sent)
    finding.message += fmt::format(
        ": the tags {} and {} do not match, so the message is never received. A recv gets only what was sent with its "
        "tag",
        tags.sent->call.tag, tags.received->call.tag);
  else
    finding.message += fmt::format(": none of them can continue. {}", kOneOrder);
  for (const StuckCall* stuck_call : stuck_calls) {
    if (const std::string stages = stages_words(picture, stuck_call->wait->call); !stages.empty())
      finding.message += fmt::format("; {}: {}", call_words(*stuck_call->wait), stages);
    finding.message += evidence_words(picture, stuck_call->wait->call);
  }
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

  // Ranks that wait for a rank that is gone, or for such ranks, are explained by that.
  const StuckCalls stuck_calls = stuck_calls_of(picture, stuck);
  RankSet explained;
  std::map<int, int> through;  // rank → the rank that it waits for, towards one that waits for a gone rank
  for (const auto& [key, stuck_call] : stuck_calls)
    if (!stuck_call.lost.empty()) explained = explained | stuck_call.waiting;
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [key, stuck_call] : stuck_calls) {
      const RankSet via = stuck_call.missing & explained, fresh = stuck_call.waiting - explained;
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
  for (const auto& [key, stuck_call] : stuck_calls) {
    if (stuck_call.lost.empty()) continue;
    RankSet indirect;
    std::string consequences;
    for (const auto& [other_key, other] : stuck_calls) {
      RankSet ranks;
      for (const int rank : other.waiting)
        if (through.contains(rank) && stuck_call.waiting.contains(end_of(rank))) ranks.insert(rank);
      if (ranks.empty()) continue;
      indirect = indirect | ranks;
      consequences += fmt::format("; because of that {} {} in {} for {}", ranks.words(), plural("{wait}", ranks.size()),
                                  call_words(*other.wait), (other.missing & explained).words());
    }
    result.proven.push_back(gone_hang(picture, stuck_call, consequences, indirect));
  }

  // The remaining ranks wait in circles.
  RankSet left = stuck - explained;
  while (!left.empty()) {
    RankSet component{left.ranks().front()};
    for (bool changed = true; changed;) {
      changed = false;
      for (const auto& [key, stuck_call] : stuck_calls) {
        const RankSet touched = (stuck_call.waiting | stuck_call.missing) & left;
        if ((touched & component).empty() || (touched - component).empty()) continue;
        component = component | touched;
        changed = true;
      }
    }
    std::vector<const StuckCall*> circle;
    for (const auto& [key, stuck_call] : stuck_calls)
      if (!(stuck_call.waiting & component).empty()) circle.push_back(&stuck_call);
    std::stable_sort(circle.begin(), circle.end(), [](const StuckCall* a, const StuckCall* b) {
      return a->waiting.ranks().front() < b->waiting.ranks().front();
    });
    result.proven.push_back(crossed_hang(picture, circle));
    left = left - component;
  }
  return result;
}

}  // namespace lockstep::inspect
