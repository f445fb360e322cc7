#include "inspectors/hang/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "inspectors/findings/about.h"
#include "inspectors/findings/text.h"
#include "inspectors/hang/aftermath.h"
#include "inspectors/hang/circles.h"
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
  if (rank.activity == FindingKind::device)
    return std::ranges::any_of(rank.waits, [](const RankWait& wait) { return wait.call.on_device; });
  if (rank.activity != FindingKind::unknown) return rank.activity == FindingKind::collective;
  return std::any_of(rank.waits.begin(), rank.waits.end(), [&](const RankWait& wait) {
    return !wait.call.async && !wait.call.on_device && wait.call.thread == rank.main_thread;
  });
}

/// A collective in which ranks wait.
struct StuckCall : CallWait {
  RankSet lost;  // those of the missing ranks that can't come any more
  const RankPicture* first = nullptr;  // the lowest waiting rank
  const RankWait* wait = nullptr;      // its wait
};

std::vector<StuckCall> stuck_calls_of(const HangPicture& picture, const RankSet& stuck) {
  std::map<std::tuple<std::string, int64_t, std::string>, StuckCall> stuck_calls;
  for (const int number : stuck) {
    const RankPicture& rank = *picture.rank(number);
    for (const RankWait& wait : rank.waits) {
      const std::string pair =
          wait.call.point_to_point ? fmt::format("{} {} {}", wait.call.op, rank.rank, wait.call.root) : std::string();
      StuckCall& stuck_call = stuck_calls[{wait.call.group, wait.call.seq, pair}];
      if (!stuck_call.first) stuck_call.first = &rank, stuck_call.wait = &wait;
      stuck_call.waiting.insert(number);
      const RankSet missing = missing_for(picture, rank, wait);
      stuck_call.missing = stuck_call.missing | missing;
      stuck_call.lost = stuck_call.lost | lost_of(picture, wait, missing);
    }
  }
  std::vector<StuckCall> result;
  for (auto& [key, stuck_call] : stuck_calls) result.push_back(std::move(stuck_call));
  return result;
}

/// What the waits of some ranks explain: ranks that wait for these ranks, directly or through others.
class Consequences {
 public:
  explicit Consequences(const std::vector<StuckCall>& stuck_calls) : stuck_calls_(stuck_calls) {}

  const RankSet& explained() const { return explained_; }

  /// `ranks` are stuck for a reason of their own, and what waits for them follows.
  void explain(const RankSet& ranks) {
    explained_ = explained_ | ranks;
    for (bool changed = true; changed;) {
      changed = false;
      for (const StuckCall& stuck_call : stuck_calls_) {
        const RankSet via = stuck_call.missing & explained_, fresh = stuck_call.waiting - explained_;
        if (via.empty() || fresh.empty()) continue;
        for (const int rank : fresh) through_[rank] = via.ranks().front();
        explained_ = explained_ | fresh;
        changed = true;
      }
    }
  }

  /// Adds the ranks that wait because `causes` do to a finding about those: "; because of that rank 3 waits in …".
  void add_to(ProvenHang& hang, const RankSet& causes) const {
    for (const StuckCall& stuck_call : stuck_calls_) {
      RankSet ranks;
      for (const int rank : stuck_call.waiting)
        if (through_.contains(rank) && causes.contains(end_of(rank))) ranks.insert(rank);
      if (ranks.empty()) continue;
      hang.waiting = hang.waiting | ranks;
      hang.finding.message +=
          fmt::format("; because of that {} {} in {} for {}", ranks.words(), plural("{wait}", ranks.size()),
                      call_words(*stuck_call.wait), (stuck_call.missing & explained_).words());
    }
  }

 private:
  int end_of(int rank) const {
    while (through_.contains(rank)) rank = through_.at(rank);
    return rank;
  }

  const std::vector<StuckCall>& stuck_calls_;
  RankSet explained_;
  std::map<int, int> through_;  // rank → the rank that it waits for, towards one that is stuck for a reason of its own
};

/// Whether `peer` destroyed the group in which others wait, and did not fail.
bool only_left_group(const RankPicture& peer, const CollectiveRecord& call) {
  return has_left_group(peer, call) && (!peer.gone() || peer.has_finished());
}

/// Returns the ranks that are gone, with the reason: "rank 1 has finished without entering it".
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

/// Returns a rank that is not in the group, tried to use it, and threw.
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
ProvenHang gone_hang(const HangPicture& picture, const StuckCall& stuck_call, const Consequences& consequences) {
  ProvenHang hang;
  hang.waiting = stuck_call.waiting;
  hang.missing = stuck_call.lost;
  const bool all_dead = std::ranges::all_of(
      stuck_call.lost, [&](int number) { return picture.rank(number)->place == RankPicture::Place::dead; });
  Finding& finding = hang.finding =
      finding_of(stuck_call, all_dead ? Verdict::dead : Verdict::hang,
                 kind_of(*picture.rank(stuck_call.lost.ranks().front()), stuck_call.wait->call));
  hang.consequence = std::ranges::any_of(stuck_call.lost, [&](int number) {
    const RankPicture& peer = *picture.rank(number);
    return peer.how == CellStatus::error && peer.error_type.ends_with("CollectiveMismatch");
  });
  finding.message = waits_in(stuck_call) + ", and " + lost_words(picture, stuck_call);
  consequences.add_to(hang, stuck_call.waiting);
  finding.ranks = stuck_call.lost;
  finding.reference_ranks = hang.waiting - stuck_call.lost;
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
        group ? fmt::format(" (ranks {}{})", RankSet(group->ranks).str(),
                            group->unnamed > 0 ? fmt::format(" and {} more", group->unnamed) : "")
              : std::string(),
        in_brackets(rank->where));
  }
  const CollectiveRecord& call = stuck_call.wait->call;
  finding.message += evidence_words(picture, call);
  hang.key = fmt::format("{} {}", call.group, call.seq);
  if (call.point_to_point) hang.key += fmt::format(" {} {} {}", call.op, stuck_call.first->rank, call.root);
  return hang;
}

/// Is a send and a recv between the same two ranks that differ only in their tags.
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
ProvenHang crossed_hang(const HangPicture& picture, const std::vector<StuckCall>& all, const Circle& circle,
                        const Consequences& consequences) {
  std::vector<const StuckCall*> stuck_calls;
  for (const size_t call : circle.calls) stuck_calls.push_back(&all[call]);
  const TagPair tags = tags_that_differ(stuck_calls);
  ProvenHang hang;
  hang.waiting = hang.missing = circle.ranks;
  Finding& finding = hang.finding =
      finding_of(all[circle.largest], Verdict::hang, tags.sent ? FindingKind::tag : FindingKind::other_collective);
  finding.ranks = circle.majority.at_fault;
  finding.reference_ranks = circle.majority.reference;
  for (const StuckCall* stuck_call : stuck_calls) {
    finding.message += fmt::format("{}{} for {}", finding.message.empty() ? "" : ", and ", waits_in(*stuck_call),
                                   (stuck_call->missing & circle.ranks).words());
    hang.key += fmt::format("{}{} {} {}", hang.key.empty() ? "" : "; ", stuck_call->wait->call.group,
                            stuck_call->wait->call.seq, stuck_call->waiting.str());
  }
  finding.message += tags.sent ? fmt::format(": the tags {} and {} do not match, so the message is never received",
                                             tags.sent->call.tag, tags.received->call.tag)
                               : ": none of them can continue";
  consequences.add_to(hang, circle.ranks);
  finding.message += fmt::format(". {}", tags.sent                 ? "A recv gets only what was sent with its tag"
                                         : stuck_calls.size() == 1 ? "A rank can't receive from itself; copy the tensor"
                                                                   : kOneOrder);
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

  // What waits for a rank that is gone, or for such ranks, is explained by that. The others wait for one another, or for
  // ranks that do.
  const std::vector<StuckCall> stuck_calls = stuck_calls_of(picture, stuck);
  Consequences consequences(stuck_calls);
  RankSet causes;
  for (const StuckCall& stuck_call : stuck_calls)
    if (!stuck_call.lost.empty()) causes = causes | stuck_call.waiting;
  consequences.explain(causes);
  const RankSet left = stuck - consequences.explained();
  std::vector<CallWait> waits;
  for (const StuckCall& each : stuck_calls) waits.push_back({each.waiting, each.missing & left});
  const std::vector<Circle> circles = circles_of(waits);
  for (const Circle& circle : circles) causes = causes | circle.ranks;
  consequences.explain(causes);
  for (const StuckCall& stuck_call : stuck_calls)
    if (!stuck_call.lost.empty()) result.proven.push_back(gone_hang(picture, stuck_call, consequences));
  for (const Circle& circle : circles)
    result.proven.push_back(crossed_hang(picture, stuck_calls, circle, consequences));
  return result;
}

}  // namespace lockstep::inspect
