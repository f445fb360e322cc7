// Writes the report as data, with a chart: a bar for each rank, made of the tensors of each name.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "inspectors/memory/memory.h"
#include "protocol/chart.h"

namespace lockstep::inspect {

std::string report_data(const MemoryReport& report) {
  using nlohmann::json;
  constexpr double kMegabyte = 1e6;  // as the table has them
  constexpr size_t kMostSeries = 8;  // of the chart; the smallest are one series
  std::map<std::string, std::map<int, int64_t>> bytes;  // name and kind → rank → bytes
  std::map<std::string, int64_t> most;
  for (const RankMemory& rank : report.ranks)
    for (const TensorMemory& each : rank.tensors) {
      const std::string name = each.kind == "tensor" ? each.name : each.name + " (" + each.kind + ")";
      most[name] = std::max(most[name], bytes[name][rank.rank] += each.bytes);
    }
  std::vector<std::string> names;
  for (const auto& [name, largest] : most)
    if (largest > 0) names.push_back(name);
  std::stable_sort(names.begin(), names.end(),
                   [&](const std::string& a, const std::string& b) { return most[a] > most[b]; });
  Chart chart{.kind = ChartKind::stack,
              .title = "Memory of tensors",
              .x_label = "",
              .y_label = "MB",
              .categories = {},
              .series = {}};
  for (const RankMemory& rank : report.ranks) chart.categories.push_back("rank " + std::to_string(rank.rank));
  for (size_t i = 0; i < names.size(); ++i) {
    if (i < kMostSeries)
      chart.series.push_back({.name = names[i], .x = {}, .y = std::vector<double>(report.ranks.size()), .begin = {}});
    else if (i == kMostSeries)
      chart.series.back().name = "others";
    for (size_t rank = 0; rank < report.ranks.size(); ++rank)
      chart.series.back().y[rank] += static_cast<double>(bytes[names[i]][report.ranks[rank].rank]) / kMegabyte;
  }
  json data = {{"report", "memory"}, {"ranks", report.ranks}};
  if (!chart.series.empty()) data[kChartMime] = chart;
  return data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);  // names need not be UTF-8
}

}  // namespace lockstep::inspect
