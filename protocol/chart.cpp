#include "protocol/chart.h"

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;
constexpr std::array<std::pair<ChartKind, const char*>, 4> kKinds = {
    {{ChartKind::line, "line"}, {ChartKind::bar, "bar"}, {ChartKind::stack, "stack"}, {ChartKind::span, "span"}}};

/// Numbers that JSON lacks are words, as in events.
json numbers(const std::vector<double>& values) {
  json result = json::array();
  for (const double value : values) {
    if (std::isfinite(value))
      result.push_back(value);
    else
      result.push_back(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  }
  return result;
}

std::vector<double> numbers_of(const json& list) {
  std::vector<double> result;
  for (const json& value : list) {
    if (value.is_number())
      result.push_back(value.get<double>());
    else if (value == "inf" || value == "-inf")
      result.push_back(value == "inf" ? std::numeric_limits<double>::infinity()
                                      : -std::numeric_limits<double>::infinity());
    else
      result.push_back(std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

}  // namespace

void to_json(json& form, const Chart& chart) {
  const char* kind = "line";
  for (const auto& [each, word] : kKinds)
    if (each == chart.kind) kind = word;
  json series = json::array();
  for (const ChartSeries& each : chart.series) {
    json one = {{"name", each.name}, {"y", numbers(each.y)}};
    if (!each.x.empty()) one["x"] = numbers(each.x);
    if (!each.begin.empty()) one["begin"] = numbers(each.begin);
    series.push_back(std::move(one));
  }
  form = {{"schema", kSchema},          {"kind", kind},
          {"title", chart.title},       {"x_label", chart.x_label},
          {"y_label", chart.y_label},   {"categories", chart.categories},
          {"series", std::move(series)}};
}

std::optional<Chart> chart_in(const json& data) {
  if (!data.is_object()) return {};
  const auto found = data.find(kChartMime);
  if (found == data.end() || !found->is_object()) return {};
  try {
    const json& form = *found;
    Chart chart;
    bool known = false;
    for (const auto& [kind, word] : kKinds)
      if (form.at("kind") == word) {
        chart.kind = kind;
        known = true;
      }
    if (!known) return {};
    chart.title = form.at("title");
    chart.x_label = form.at("x_label");
    chart.y_label = form.at("y_label");
    chart.categories = form.at("categories").get<std::vector<std::string>>();
    for (const json& one : form.at("series")) {
      ChartSeries series{.name = one.at("name"), .x = {}, .y = numbers_of(one.at("y")), .begin = {}};
      if (one.contains("x")) series.x = numbers_of(one["x"]);
      if (one.contains("begin")) series.begin = numbers_of(one["begin"]);
      const bool fits = chart.kind == ChartKind::line ? series.x.size() == series.y.size()
                                                      : series.y.size() == chart.categories.size();
      if (!fits || (chart.kind == ChartKind::span && series.begin.size() != series.y.size())) return {};
      chart.series.push_back(std::move(series));
    }
    return chart;
  } catch (const json::exception&) {
    return {};
  }
}

bool is_plot(const json& data) { return data.is_object() && data.size() == 1 && data.contains(kChartMime); }

}  // namespace lockstep
