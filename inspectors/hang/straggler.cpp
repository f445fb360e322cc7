#include "inspectors/hang/straggler.h"

#include <fmt/format.h>

#include <algorithm>

#include "inspectors/findings/about.h"
#include "inspectors/findings/median.h"

namespace lockstep::inspect {
namespace {

std::optional<Finding> find_in_group(const GroupTimes& group, const StragglerOptions& options) {
  if (group.stays.size() < 2) return std::nullopt;
  std::map<int, double> own;  // seconds between leaving one collective and entering the next
  std::map<int, int> last;    // how often it entered last, of `waited`
  int steps = 0, waited = 0;
  for (const auto& [seq, stay] : group.stays.begin()->second) {
    std::map<int, std::pair<double, double>> times;  // own, arrival
    for (const auto& [rank, theirs] : group.stays) {
      const auto here = theirs.find(seq), before = theirs.find(seq - 1);
      if (here == theirs.end() || before == theirs.end()) break;
      // The time is zero if the rank entered a collective before the last one ended (asynchronous ones).
      times[rank] = {std::max(0.0, static_cast<double>(here->second.entered_ns - before->second.done_ns) / 1e9),
                     static_cast<double>(here->second.entered_ns) / 1e9};
    }
    if (times.size() != group.stays.size()) continue;
    ++steps;
    const auto by_arrival = [](const auto& a, const auto& b) { return a.second.second < b.second.second; };
    const auto [earliest, latest] = std::minmax_element(times.begin(), times.end(), by_arrival);
    for (const auto& [rank, time] : times) own[rank] += time.first;
    if (latest->second.second - earliest->second.second < options.least_wait_s) continue;
    ++waited;
    ++last[latest->first];
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
    Finding finding = About{.inspector = "hang", .object = {}, .step = {}, .ranks = RankSet{rank}}.finding(
        Severity::note, Verdict::straggler);
    finding.reference_ranks = other_ranks;
    finding.op = group.newest;
    const std::string ratio = theirs > 0 ? fmt::format(", {:.1f} times as long", its / theirs) : std::string();
    finding.message = fmt::format(
        "rank {} is the last to enter {} of the {} collectives of group {} in which ranks waited: {:.1f} ms between "
        "collectives, {} {:.1f} ms{}",
        rank, times, waited, group.name, 1e3 * its / steps, other_ranks.words(), 1e3 * theirs / steps, ratio);
    return finding;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> find_straggler(const std::vector<GroupTimes>& groups, const StragglerOptions& options) {
  for (const GroupTimes& group : groups)
    if (auto finding = find_in_group(group, options)) return finding;
  return std::nullopt;
}

std::vector<GroupTimes> times_of(const HangPicture& picture) {
  std::vector<GroupTimes> result;
  for (const RankPicture& first : picture.ranks)
    for (const dist::LoggedGroup& group : first.groups) {
      if (!group.member || group.ranks.empty() || group.ranks.front() != first.rank) continue;  // once for each group
      GroupTimes times{.name = group.name, .stays = {}, .newest = {}};
      for (const int number : group.ranks)
        if (const RankPicture* rank = picture.rank(number); rank && rank->has_log)
          for (const auto& record : rank->recent)
            if (record.group == group.name && !record.point_to_point && record.cell == picture.cell &&
                record.done_ns > 0) {
              times.stays[number][record.seq] = {record.entered_ns, record.done_ns};
              times.newest = dist::to_finding_op(record);
            }
      if (group.unnamed == 0 && times.stays.size() == group.ranks.size()) result.push_back(std::move(times));
    }
  return result;
}

}  // namespace lockstep::inspect
