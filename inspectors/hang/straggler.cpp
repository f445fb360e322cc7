#include "inspectors/hang/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "inspectors/findings/median.h"
#include "inspectors/hang/words.h"

namespace lockstep::inspect {
namespace {

using Calls = std::map<int64_t, const dist::CollectiveRecord*>;

std::optional<Finding> look_at_group(const HangPicture& picture, const dist::LoggedGroup& group,
                                     const StragglerOptions& options) {
  std::map<int, Calls> calls;
  for (const int number : group.ranks) {
    const RankPicture* rank = picture.rank(number);
    if (!rank || !rank->has_log) return std::nullopt;
    for (const auto& record : rank->recent)
      if (record.group == group.name && !record.point_to_point && record.cell == picture.cell && record.done_ns > 0)
        calls[number][record.seq] = &record;
  }
  if (calls.size() < 2 || calls.size() != group.ranks.size()) return std::nullopt;

  std::map<int, double> own;  // seconds between leaving one collective and entering the next
  std::map<int, int> last;    // how often it came last, of `waited`
  int steps = 0, waited = 0;
  for (const auto& [seq, record] : calls.begin()->second) {
    std::map<int, std::pair<double, double>> times;  // own, arrival
    for (const auto& [rank, theirs] : calls) {
      const auto here = theirs.find(seq), before = theirs.find(seq - 1);
      if (here == theirs.end() || before == theirs.end()) break;
      // One that was entered before the last was done (asynchronous ones) says nothing of what the rank did in between.
      times[rank] = {std::max(0.0, static_cast<double>(here->second->entered_ns - before->second->done_ns) / 1e9),
                     static_cast<double>(here->second->entered_ns) / 1e9};
    }
    if (times.size() != calls.size()) continue;
    ++steps;
    const auto by_arrival = [](const auto& a, const auto& b) { return a.second.second < b.second.second; };
    const auto [first_come, last_come] = std::minmax_element(times.begin(), times.end(), by_arrival);
    for (const auto& [rank, time] : times) own[rank] += time.first;
    if (last_come->second.second - first_come->second.second < options.least_wait_s) continue;
    ++waited;
    ++last[last_come->first];
  }
  if (steps + 1 < options.collectives || waited * 2 < options.collectives) return std::nullopt;

  for (const auto& [rank, times] : last) {
    if (times < options.often * waited) continue;
    std::vector<double> others;
    RankSet other_ranks;
    for (const auto& [other, seconds] : own) {
      if (other == rank) continue;
      others.push_back(seconds);
      other_ranks.insert(other);
    }
    const double theirs = median(others), its = own[rank];
    if (its < options.times_longer * theirs) continue;
    Finding finding;
    finding.severity = Severity::note;
    finding.inspector = "hang";
    finding.verdict = "straggler";
    finding.ranks = RankSet{rank};
    finding.reference_ranks = other_ranks;
    finding.op = dist::to_finding_op(*calls.at(rank).rbegin()->second);
    const std::string ratio = theirs > 0 ? fmt::format(", {:.1f} times as long", its / theirs) : std::string();
    finding.message = fmt::format(
        "rank {} comes last to {} of the {} collectives of group {} in which ranks waited: {:.1f} ms from one to the "
        "next, "
        "{} {:.1f} ms{}",
        rank, times, waited, group.name, 1e3 * its / steps, other_ranks.words(), 1e3 * theirs / steps, ratio);
    return finding;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> find_straggler(const HangPicture& picture, const StragglerOptions& options) {
  for (const RankPicture& rank : picture.ranks)
    for (const dist::LoggedGroup& group : rank.groups) {
      if (!group.member || group.ranks.empty() || group.ranks.front() != rank.rank) continue;  // once for each group
      if (auto finding = look_at_group(picture, group, options)) return finding;
    }
  return std::nullopt;
}

}  // namespace lockstep::inspect
