// Writes the report as data, with a chart: a bar for each rank with synchronisation and one without.
#include <nlohmann/json.hpp>

#include "inspectors/timing/time_sync.h"
#include "protocol/chart.h"

namespace lockstep::inspect {

std::string report_data(const TimeSyncReport& report) {
  using nlohmann::json;
  constexpr double kMilliseconds = 1e3;
  json ranks = json::array();
  Chart chart{.kind = ChartKind::bar,
              .title = "A step with synchronisation and without",
              .x_label = "",
              .y_label = "ms",
              .categories = {},
              .series = {{.name = "synchronised", .x = {}, .y = {}, .begin = {}},
                         {.name = "not synchronised", .x = {}, .y = {}, .begin = {}}}};
  for (const StepTimes& each : report.ranks) {
    ranks.push_back(TimeSyncFacts{.times = each, .reduction = {}});
    ranks.back().erase("reduction");
    chart.categories.push_back("rank " + std::to_string(each.rank));
    chart.series[0].y.push_back(each.synchronised.median * kMilliseconds);
    chart.series[1].y.push_back(each.unsynchronised.median * kMilliseconds);
  }
  json data = {{"report", "time_sync"},
               {"ranks", std::move(ranks)},
               {"synchronised", report.synchronised},
               {"unsynchronised", report.unsynchronised},
               {"exposed", report.exposed},
               {"reduction", nullptr},
               {"reductions", report.reductions},
               {"reduced_bytes", report.reduced_bytes},
               {"hidden", report.hidden ? json(*report.hidden) : json()},
               {"speed_up", report.speed_up},
               {"slowest", report.slowest},
               {"slower_by", report.slower_by}};
  if (report.reduction) data["reduction"] = {report.reduction->median, report.reduction->low, report.reduction->high};
  if (!report.ranks.empty()) data[kChartMime] = chart;
  return data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // names need not be UTF-8
}

}  // namespace lockstep::inspect
