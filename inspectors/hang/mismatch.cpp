#include "inspectors/hang/mismatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "collectives/log/call_order.h"
#include "inspectors/findings/about.h"
#include "inspectors/findings/majority.h"
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
}  // namespace

std::optional<Finding> mismatch_of_call(const HangPicture& picture, const std::string& group, int64_t seq,
                                        const std::string& inspector) {
  std::vector<dist::Camp> camps;
  for (const RankPicture& rank : picture.ranks)
    for (const CollectiveRecord& record : rank.recent) {
      if (record.group != group || record.seq != seq || record.point_to_point) continue;
      if (reports_itself(rank, record)) return std::nullopt;
      auto camp =
          std::ranges::find_if(camps, [&](const dist::Camp& each) { return dist::fit_together(*each.call, record); });
      if (camp == camps.end()) camp = camps.insert(camps.end(), {{}, &record, &rank.recent});
      camp->ranks.insert(rank.rank);
    }
  if (camps.size() < 2) return std::nullopt;
  std::ranges::stable_sort(camps, {}, [](const dist::Camp& camp) { return camp.ranks.size(); });
  const dist::CallDifference difference = dist::difference_of(camps, group, seq);
  Finding finding =
      About{.inspector = inspector, .object = {}, .step = {}, .ranks = {}}.finding(Severity::fault, difference.verdict);
  const auto line_in = [&](const dist::Camp& camp) {
    return line_of(*picture.rank(camp.ranks.ranks().front()), *camp.call);
  };
  RankSet all;
  for (const dist::Camp& camp : camps) {
    all = all | camp.ranks;
    finding.message += fmt::format("{}{} called {}{}", finding.message.empty() ? "" : ", ", camp.ranks.words(),
                                   describe(*camp.call), in_brackets(line_in(camp)));
  }
  const Majority majority = majority_of(all, camps.back().ranks);
  finding.ranks = majority.at_fault;
  finding.reference_ranks = majority.reference;
  finding.op = dist::to_finding_op(*camps.back().call);
  if (const std::string line = line_in(camps.front()); !line.empty()) finding.where = line;
  finding.message += fmt::format(" as #{} of group {}{}. {}", seq, group, difference.order_words, kOneOrder);
  return finding;
}

std::vector<ProvenHang> mismatched_calls(const HangPicture& picture) {
  std::vector<ProvenHang> hangs;
  if (picture.calls_compared) return hangs;
  std::set<std::pair<std::string, int64_t>> seen;
  for (const RankPicture& rank : picture.ranks) {
    if (rank.gone()) continue;
    for (const RankWait& wait : rank.waits) {
      if (wait.call.point_to_point || !rank.has_log) continue;
      if (!seen.insert({wait.call.group, wait.call.seq}).second) continue;
      const auto finding = mismatch_of_call(picture, wait.call.group, wait.call.seq, "hang");
      if (!finding) continue;
      ProvenHang hang{.finding = *finding};
      for (const RankPicture& each : picture.ranks)
        if (!each.gone() && std::any_of(each.waits.begin(), each.waits.end(), [&](const RankWait& w) {
              return w.call.group == wait.call.group && w.call.seq == wait.call.seq;
            }))
          hang.waiting.insert(each.rank);
      hang.missing = finding->ranks;
      hang.key = fmt::format("{} {}", wait.call.group, wait.call.seq);
      hangs.push_back(std::move(hang));
    }
  }
  return hangs;
}

}  // namespace lockstep::inspect
