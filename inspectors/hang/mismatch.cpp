#include "inspectors/hang/mismatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "collectives/log/call_order.h"
#include "inspectors/findings/about.h"
#include "inspectors/findings/text.h"
#include "inspectors/hang/words.h"

namespace lockstep::inspect {

using dist::CollectiveRecord;

namespace {
/// Whether the rank has found itself that its call does not match, and reports it (dist::CollectiveMismatch).
bool reports_itself(const RankPicture& rank, const CollectiveRecord& call) {
  if (call.state != dist::CollectiveState::failed) return false;
  if (rank.gone()) return rank.error_type.ends_with("CollectiveMismatch");
  return std::none_of(rank.waits.begin(), rank.waits.end(), [](const RankWait& wait) { return wait.broken; });
}

Verdict verdict_of(const CollectiveRecord& a, const CollectiveRecord& b) {
  if (a.op != b.op) return Verdict::op_mismatch;
  if (a.dtype != b.dtype) return Verdict::dtype_mismatch;
  return a.shape != b.shape ? Verdict::shape_mismatch : Verdict::op_mismatch;
}
}  // namespace

std::vector<ProvenHang> mismatched_calls(const HangPicture& picture) {
  std::vector<ProvenHang> hangs;
  if (picture.calls_compared) return hangs;
  std::set<std::pair<std::string, int64_t>> seen;
  for (const RankPicture& rank : picture.ranks) {
    if (rank.gone()) continue;
    for (const RankWait& wait : rank.waits) {
      if (wait.call.point_to_point || !rank.has_log) continue;
      if (!seen.insert({wait.call.group, wait.call.seq}).second) continue;
      std::vector<std::pair<RankSet, const CollectiveRecord*>> camps;
      std::map<const CollectiveRecord*, const RankPicture*> owners;
      bool reported = false;
      for (const RankPicture& peer : picture.ranks)
        for (const CollectiveRecord& record : peer.recent) {
          if (record.group != wait.call.group || record.seq != wait.call.seq || record.point_to_point) continue;
          auto camp = std::find_if(camps.begin(), camps.end(),
                                   [&](const auto& each) { return dist::fit_together(*each.second, record); });
          if (camp == camps.end()) camp = camps.insert(camps.end(), {RankSet(), &record}), owners[&record] = &peer;
          camp->first.insert(peer.rank);
          reported = reported || reports_itself(peer, record);
        }
      if (camps.size() < 2 || reported) continue;
      std::stable_sort(camps.begin(), camps.end(),
                       [](const auto& a, const auto& b) { return a.first.size() < b.first.size(); });
      const auto& [few, odd] = camps.front();
      const auto& [many, usual] = camps.back();
      Verdict verdict = verdict_of(*odd, *usual);
      for (const auto proof : {dist::OrderProof::turns, dist::OrderProof::lines})
        for (const auto& [a, b] : {std::pair{usual, odd}, std::pair{odd, usual}})
          if (dist::order_mismatch(owners[a]->recent, owners[b]->recent, wait.call.group, wait.call.seq, proof))
            verdict = Verdict::order_mismatch;
      ProvenHang hang;
      Finding& finding = hang.finding =
          About{.inspector = "hang", .object = {}, .step = {}, .ranks = {}}.finding(Severity::fault, verdict);
      RankSet all;
      for (const auto& [ranks, record] : camps) {
        all = all | ranks;
        finding.message += fmt::format("{}{} called {}{}", finding.message.empty() ? "" : ", ", ranks.words(),
                                       describe(*record), in_brackets(line_of(*owners[record], *record)));
      }
      const bool majority = 2 * many.size() > all.size();
      finding.ranks = majority ? all - many : all;
      if (majority) finding.reference_ranks = many;
      finding.op = dist::to_finding_op(*usual);
      if (const std::string line = line_of(*owners[odd], *odd); !line.empty()) finding.where = line;
      finding.message +=
          fmt::format(" as #{} of group {}{}. {}", wait.call.seq, wait.call.group,
                      verdict == Verdict::order_mismatch ? ": the same calls in another order" : "", kOneOrder);
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

}  // namespace lockstep::inspect
