#include "shell/charts/chart_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::shell {
namespace {

Range with_width(Range range) {
  if (range.is_empty) return {.low = 0, .high = 1, .is_empty = true};
  // The numbers are so far apart that their difference is none.
  if (!std::isfinite(range.high - range.low)) return {.low = -1e300, .high = 1e300, .is_empty = false};
  if (range.high > range.low) return range;
  const double margin = range.low == 0 ? 1 : std::abs(range.low) / 2;
  return {.low = range.low - margin, .high = range.high + margin, .is_empty = false};
}

bool same_numbers(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

bool same_points(const ChartSeries& a, const ChartSeries& b) {
  return a.name == b.name && same_numbers(a.x, b.x) && same_numbers(a.y, b.y) && same_numbers(a.begin, b.begin);
}

}  // namespace

void Range::take(double value) {
  if (!std::isfinite(value)) return;
  low = is_empty ? value : std::min(low, value);
  high = is_empty ? value : std::max(high, value);
  is_empty = false;
}

Range x_range(const Chart& chart) {
  Range range;
  for (const ChartSeries& series : chart.series)
    for (size_t i = 0; i < series.x.size(); ++i)
      if (std::isfinite(series.y[i])) range.take(series.x[i]);
  return with_width(range);
}

Range y_range(const Chart& chart) {
  Range range;
  if (chart.kind == ChartKind::stack) {
    for (size_t i = 0; i < chart.categories.size(); ++i) {
      double sum = 0;
      for (const ChartSeries& series : chart.series)
        if (std::isfinite(series.y[i])) sum += series.y[i];
      range.take(sum);
    }
  } else {
    for (const ChartSeries& series : chart.series) {
      for (const double value : series.y) range.take(value);
      for (const double value : series.begin) range.take(value);
    }
  }
  if (chart.kind != ChartKind::line) range.take(0);
  return with_width(range);
}

std::vector<double> ticks(const Range& range, int count) {
  const double rough = (range.high - range.low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  if (!(power > 0) || !std::isfinite(power)) return {range.low, range.high};
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  std::vector<double> result;
  const double first = std::ceil(range.low / step - 1e-9);
  for (int i = 0; i < 50; ++i) {
    const double value = (first + i) * step;
    if (value > range.high + 1e-9 * step) break;
    result.push_back(value == 0 ? 0 : value);
  }
  return result;
}

std::string number_text(double value) {
  const double size = std::abs(value);
  return size >= 1e4 && size < 1e7 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::optional<Chart> joined(const std::vector<RankChart>& charts, const RankSet& all) {
  if (charts.empty()) return {};
  Chart result = charts.front().chart;
  result.series.clear();
  for (const RankChart& each : charts)
    if (each.chart.kind != result.kind || each.chart.categories != result.categories) return {};
  struct Entry {
    ChartSeries series;
    RankSet ranks;
  };
  std::vector<Entry> entries;
  for (const RankChart& each : charts)
    for (const ChartSeries& series : each.chart.series) {
      const auto same = std::find_if(entries.begin(), entries.end(),
                                     [&](const Entry& entry) { return same_points(entry.series, series); });
      if (same != entries.end())
        same->ranks = same->ranks | each.ranks;
      else
        entries.push_back({series, each.ranks});
    }
  // Series of one name stand beside one another, in the order in which they came first.
  std::vector<std::string> names;
  for (const Entry& entry : entries)
    if (std::find(names.begin(), names.end(), entry.series.name) == names.end()) names.push_back(entry.series.name);
  for (const std::string& name : names)
    for (Entry& entry : entries) {
      if (entry.series.name != name) continue;
      ChartSeries series = entry.series;
      if (!(all - entry.ranks).empty()) series.name += (name.empty() ? "" : " · ") + entry.ranks.words();
      result.series.push_back(std::move(series));
    }
  return result;
}

}  // namespace lockstep::shell
