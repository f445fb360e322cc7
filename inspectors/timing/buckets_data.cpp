// Writes the report as data, with a chart: a row for each bucket of each rank, with the wait for its gradients and its
// reduction.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "inspectors/timing/buckets.h"
#include "protocol/chart.h"

namespace lockstep::inspect {

std::string report_data(const BucketsReport& report) {
  using nlohmann::json;
  constexpr double kMilliseconds = 1e3, kNone = std::numeric_limits<double>::quiet_NaN();
  json buckets = json::array();
  for (const ddp::Bucket& each : report.buckets)
    buckets.push_back({{"index", each.index}, {"bytes", each.bytes}, {"parameters", each.parameters}});
  Chart chart{.kind = ChartKind::span,
              .title = report.step ? "Buckets of step " + std::to_string(*report.step) : "Buckets",
              .x_label = "",
              .y_label = "ms since the end of forward",
              .categories = {},
              .series = {{.name = "gradients not ready", .x = {}, .y = {}, .begin = {}},
                         {.name = "reduction", .x = {}, .y = {}, .begin = {}}}};
  for (size_t i = 0; i < report.buckets.size(); ++i)
    for (const RankBuckets& rank : report.ranks) {
      if (i >= rank.buckets.size()) continue;
      const BucketTimes& times = rank.buckets[i];
      chart.categories.push_back("bucket " + std::to_string(report.buckets[i].index) + ", rank " +
                                 std::to_string(rank.rank));
      chart.series[0].begin.push_back(0);
      chart.series[0].y.push_back(times.ready * kMilliseconds);
      chart.series[1].begin.push_back(times.start ? *times.start * kMilliseconds : kNone);
      chart.series[1].y.push_back(times.end ? *times.end * kMilliseconds : kNone);
    }
  json data = {{"report", "buckets"},
               {"buckets", std::move(buckets)},
               {"ranks", report.ranks},
               {"step", report.step ? json(*report.step) : json()}};
  if (!chart.categories.empty()) data[kChartMime] = chart;
  return data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // names need not be UTF-8
}

}  // namespace lockstep::inspect
