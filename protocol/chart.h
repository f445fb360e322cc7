// A chart as data: show::plot and reports of inspectors send it as a part of a value, and front ends draw it as text,
// as SVG and as Vega-Lite. docs/events.md has the format of the JSON form.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The data of a value has a chart under this key, which is also its MIME type in Jupyter.
inline constexpr const char* kChartMime = "application/vnd.lockstep.chart+json";

enum class ChartKind {
  line,  // points (x, y), joined in their order
  bar,  // y[i] for category i, series beside one another
  stack,  // the same, series on top of one another
  span,  // from begin[i] to y[i] in the row of category i
};

struct ChartSeries {
  std::string name;
  std::vector<double> x;  // of lines only, as many as y
  std::vector<double> y;  // NaN: nothing is drawn there
  std::vector<double> begin;  // of spans only, as many as y
};

struct Chart {
  ChartKind kind = ChartKind::line;
  std::string title, x_label, y_label;  // empty: none. Of bars and spans: y_label is that of the numbers
  std::vector<std::string> categories;  // of bars and spans
  std::vector<ChartSeries> series;
};

void to_json(nlohmann::json& json, const Chart& chart);
/// Returns the chart in the data of a value; nothing where there is none, or where it is not well-formed.
std::optional<Chart> chart_in(const nlohmann::json& data);
/// Whether a value is a chart and nothing else (show::plot), not a report with a text of its own.
bool is_plot(const nlohmann::json& data);

}  // namespace lockstep
