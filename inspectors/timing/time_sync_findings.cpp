#include "inspectors/timing/time_sync_findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "inspectors/findings/median.h"
#include "inspectors/findings/text.h"

namespace lockstep::inspect {
namespace {

std::string summary(const TimeSyncReport& report) {
  std::string text = fmt::format("{} with synchronisation, {} without: {} exposed", time_text(report.synchronised),
                                 time_text(report.unsynchronised), time_text(report.exposed));
  if (report.reduction)
    text += fmt::format("; {} of {} alone take{} {}", counted(report.reductions, "reduction"),
                        bytes_text(static_cast<double>(report.reduced_bytes)), report.reductions == 1 ? "s" : "",
                        time_text(report.reduction->median));
  if (report.hidden) text += fmt::format(", of which {} hidden", percent_text(*report.hidden));
  return text;
}

}  // namespace

namespace detail {

void conclude(TimeSyncReport& report) {
  std::vector<double> own;
  for (const StepTimes& each : report.ranks) {
    report.synchronised = std::max(report.synchronised, each.synchronised.median);
    own.push_back(each.unsynchronised.median);
  }
  const auto slowest = std::max_element(own.begin(), own.end());
  report.unsynchronised = *slowest;
  report.slowest = report.ranks[static_cast<size_t>(slowest - own.begin())].rank;
  if (own.size() > 1) {
    own.erase(slowest);
    report.slower_by = report.unsynchronised / median(own) - 1;
  }
  report.exposed = std::max(0.0, report.synchronised - report.unsynchronised);
  if (report.reduction && report.reduction->median > 0)
    report.hidden = std::clamp(1 - report.exposed / report.reduction->median, 0.0, 1.0);
  for (const int k : {2, 4, 8})
    report.speed_up.emplace_back(
        k, k * report.synchronised /
               ((k - 1) * std::min(report.unsynchronised, report.synchronised) + report.synchronised));
}

bool is_straggler(const TimeSyncReport& report, double threshold) {
  if (report.ranks.size() < 2 || report.slower_by < threshold - 1) return false;
  double low = 0;
  std::vector<double> high;
  for (const StepTimes& each : report.ranks) {
    if (each.rank == report.slowest)
      low = each.unsynchronised.low;
    else
      high.push_back(each.unsynchronised.high);
  }
  return low > median(high);
}

}  // namespace detail

TimeSyncReport time_sync_numbers(const std::vector<TimeSyncFacts>& facts) {
  TimeSyncReport report;
  for (const TimeSyncFacts& each : facts) {
    report.ranks.push_back(each.times);
    // A reduction ends when the last rank has its result.
    if (each.reduction && (!report.reduction || each.reduction->median > report.reduction->median))
      report.reduction = each.reduction;
  }
  detail::conclude(report);
  return report;
}

std::vector<Finding> time_sync_findings(const About& about, const TimeSyncReport& report, double straggler) {
  std::vector<Finding> findings = {about.finding(Severity::note, Verdict::ok)};
  findings[0].message = summary(report);
  if (!detail::is_straggler(report, straggler)) return findings;
  Finding found = about.finding(Severity::note, Verdict::straggler);
  found.ranks = RankSet{report.slowest};
  found.reference_ranks = about.ranks - found.ranks;
  found.message = fmt::format("rank {} takes {} for a step without synchronisation, {} of the others", report.slowest,
                              time_text(report.unsynchronised), above_median_text(report.slower_by));
  findings.push_back(std::move(found));
  return findings;
}

}  // namespace lockstep::inspect
