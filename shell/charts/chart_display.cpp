#include "shell/charts/chart_display.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "shell/charts/chart_axis.h"
#include "shell/text/xml_text.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;

constexpr int kWidth = 520, kHeight = 220;  // of the field in which series are drawn
constexpr int kRowHeight = 22;  // of a bar
constexpr const char* kInk = "#888888";  // of axes and text: on white and on black
constexpr std::array<const char*, 8> kColours = {"#4c8bd9", "#e6862b", "#3fa66b", "#d9534f",
                                                 "#9a6fc9", "#a1785c", "#d46fb0", "#8a8f98"};

/// Names that are equal would be one series.
std::vector<std::string> names_of(const Chart& chart) {
  std::vector<std::string> names;
  for (const ChartSeries& series : chart.series) {
    std::string name = series.name;
    for (int i = 2; std::find(names.begin(), names.end(), name) != names.end(); ++i)
      name = fmt::format("{} ({})", series.name, i);
    names.push_back(std::move(name));
  }
  return names;
}

json title_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

json values_of(const Chart& chart, const std::vector<std::string>& names) {
  json values = json::array();
  for (size_t s = 0; s < chart.series.size(); ++s) {
    const ChartSeries& series = chart.series[s];
    for (size_t i = 0; i < series.y.size(); ++i) {
      json value = {{"series", names[s]}, {"y", std::isfinite(series.y[i]) ? json(series.y[i]) : json()}};
      if (chart.kind == ChartKind::line) {
        if (!std::isfinite(series.x[i])) continue;
        value["x"] = series.x[i];
      } else {
        if (!std::isfinite(series.y[i])) continue;
        value["category"] = chart.categories[i];
        if (chart.kind == ChartKind::span) {
          if (!std::isfinite(series.begin[i])) continue;
          value["begin"] = series.begin[i];
        }
      }
      values.push_back(std::move(value));
    }
  }
  return values;
}

/// Draws SVG, element by element. Coordinates are those of the picture.
class Svg {
 public:
  void line(double x0, double y0, double x1, double y1) {
    body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>", x0, y0, x1,
                         y1, kInk);
  }
  void text(double x, double y, const char* anchor, std::string_view words, bool is_bold = false) {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>", x, y, anchor,
                         is_bold ? " font-weight=\"bold\"" : "", xml_text(words));
  }
  void path(const std::string& points, size_t series) {
    body_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>", points,
                         kColours[series % kColours.size()]);
  }
  void box(double x, double y, double width, double height, size_t series) {
    body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>", x, y,
                         std::max(0.5, width), height, kColours[series % kColours.size()]);
  }
  std::string finish(double width, double height) const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\" fill=\"{2}\">"
        "{3}</svg>",
        width, height, kInk, body_);
  }

 private:
  std::string body_;
};

/// Draws below `top`; returns where it ends.
double svg_legend(Svg& svg, const Chart& chart, double left, double top) {
  if (chart.series.empty() || (chart.series.size() == 1 && chart.series[0].name.empty())) return top;
  double x = left;
  for (size_t s = 0; s < chart.series.size(); ++s) {
    const double width = 30 + 6.5 * static_cast<double>(chart.series[s].name.size());
    if (x > left && x + width > left + kWidth) {
      x = left;
      top += 16;
    }
    svg.box(x, top + 6, 10, 10, s);
    svg.text(x + 15, top + 15, "start", chart.series[s].name);
    x += width;
  }
  return top + 20;
}

std::string lines_svg(const Chart& chart) {
  Svg svg;
  const Range xs = x_range(chart), ys = y_range(chart);
  constexpr double kLeft = 60;
  const double top = chart.title.empty() ? 24 : 40;
  const auto x_of = [&](double value) { return kLeft + xs.part_of(value) * kWidth; };
  const auto y_of = [&](double value) { return top + (1 - ys.part_of(value)) * kHeight; };
  if (!chart.title.empty()) svg.text(kLeft, 16, "start", chart.title, /*is_bold=*/true);
  if (!chart.y_label.empty()) svg.text(kLeft, top - 8, "start", chart.y_label);
  svg.line(kLeft, top, kLeft, top + kHeight);
  svg.line(kLeft, top + kHeight, kLeft + kWidth, top + kHeight);
  for (const double value : ticks(ys, 5)) {
    svg.line(kLeft - 4, y_of(value), kLeft, y_of(value));
    svg.text(kLeft - 7, y_of(value) + 4, "end", number_text(value));
  }
  for (const double value : ticks(xs, 8)) {
    svg.line(x_of(value), top + kHeight, x_of(value), top + kHeight + 4);
    svg.text(x_of(value), top + kHeight + 16, "middle", number_text(value));
  }
  double bottom = top + kHeight + 22;
  if (!chart.x_label.empty()) {
    svg.text(kLeft + kWidth / 2.0, bottom + 10, "middle", chart.x_label);
    bottom += 16;
  }
  for (size_t s = 0; s < chart.series.size(); ++s) {
    std::string points;
    bool joins = false;
    for (size_t i = 0; i < chart.series[s].y.size(); ++i) {
      const double x = chart.series[s].x[i], y = chart.series[s].y[i];
      const bool is_drawn = std::isfinite(x) && std::isfinite(y);
      if (is_drawn) points += fmt::format("{}{:.1f} {:.1f}", joins ? "L" : "M", x_of(x), y_of(y));
      if (is_drawn && !joins) points += "h0.1";  // a point by itself can be seen
      joins = is_drawn;
    }
    svg.path(points, s);
  }
  return svg.finish(kLeft + kWidth + 20, svg_legend(svg, chart, kLeft, bottom));
}

std::string bars_svg(const Chart& chart) {
  Svg svg;
  const Range range = y_range(chart);
  size_t longest = 0;
  for (const std::string& each : chart.categories) longest = std::max(longest, each.size());
  const double left = 16 + 6.5 * static_cast<double>(std::min<size_t>(longest, 40));
  const double top = chart.title.empty() ? 8 : 28;
  const size_t in_row = chart.kind == ChartKind::bar ? std::max<size_t>(1, chart.series.size()) : 1;
  const double row = kRowHeight * std::max(1.0, 0.6 * static_cast<double>(in_row));
  const auto at = [&](double value) { return left + range.part_of(value) * kWidth; };
  if (!chart.title.empty()) svg.text(left, 16, "start", chart.title, /*is_bold=*/true);
  for (size_t i = 0; i < chart.categories.size(); ++i) {
    const double y = top + row * static_cast<double>(i);
    svg.text(left - 6, y + row / 2 + 4, "end", chart.categories[i]);
    double sum = 0;
    for (size_t s = 0; s < chart.series.size(); ++s) {
      const double value = chart.series[s].y[i];
      double from = chart.kind == ChartKind::stack ? sum : chart.kind == ChartKind::span ? chart.series[s].begin[i] : 0;
      if (!std::isfinite(value) || !std::isfinite(from)) continue;
      double to = chart.kind == ChartKind::stack ? sum + value : value;
      sum = to;
      if (to < from) std::swap(from, to);
      const double height = (row - 4) / static_cast<double>(in_row);
      const double offset = in_row > 1 ? height * static_cast<double>(s) : 0;
      svg.box(at(from), y + 2 + offset, at(to) - at(from), height, s);
    }
  }
  const double bottom = top + row * static_cast<double>(chart.categories.size());
  svg.line(left, top, left, bottom);
  svg.line(left, bottom, left + kWidth, bottom);
  for (const double value : ticks(range, 6)) {
    svg.line(at(value), bottom, at(value), bottom + 4);
    svg.text(at(value), bottom + 16, "middle", number_text(value));
  }
  double end = bottom + 22;
  if (!chart.y_label.empty()) {
    svg.text(left + kWidth / 2.0, end + 10, "middle", chart.y_label);
    end += 16;
  }
  return svg.finish(left + kWidth + 20, svg_legend(svg, chart, left, end));
}

}  // namespace

json chart_vega_lite(const Chart& chart) {
  const std::vector<std::string> names = names_of(chart);
  const bool has_names = chart.series.size() > 1 || (chart.series.size() == 1 && !chart.series[0].name.empty());
  json colour = {{"field", "series"},
                 {"type", "nominal"},
                 {"scale", {{"domain", names}, {"range", json::array()}}},
                 {"legend", has_names ? json({{"title", nullptr}, {"orient", "bottom"}}) : json()}};
  for (size_t i = 0; i < names.size(); ++i) colour["scale"]["range"].push_back(kColours[i % kColours.size()]);
  json number = {{"field", "y"}, {"type", "quantitative"}, {"title", title_or_null(chart.y_label)}};
  json encoding;
  json mark;
  if (chart.kind == ChartKind::line) {
    const bool has_single_points =
        std::ranges::any_of(chart.series, [](const ChartSeries& each) { return each.y.size() == 1; });
    const bool is_short = chart.series.size() == 1 && chart.series[0].y.size() <= 50;
    mark = {{"type", "line"}, {"point", is_short || has_single_points}, {"tooltip", true}};
    number["scale"] = {{"zero", false}};
    encoding = {{"x",
                 {{"field", "x"},
                  {"type", "quantitative"},
                  {"title", title_or_null(chart.x_label)},
                  {"scale", {{"zero", false}, {"nice", false}}}}},
                {"y", number},
                {"order", {{"value", nullptr}}}};  // points are joined in their order, not by x
  } else {
    mark = {{"type", "bar"}, {"tooltip", true}};
    encoding = {{"y", {{"field", "category"}, {"type", "nominal"}, {"sort", chart.categories}, {"title", nullptr}}}};
    if (chart.kind == ChartKind::span) {
      number["field"] = "begin";
      encoding["x"] = number;
      encoding["x2"] = {{"field", "y"}};
    } else {
      number["stack"] = chart.kind == ChartKind::stack ? json("zero") : json();
      encoding["x"] = number;
      if (chart.kind == ChartKind::bar && chart.series.size() > 1)
        encoding["yOffset"] = {{"field", "series"}, {"sort", names}};
      if (chart.kind == ChartKind::stack) encoding["order"] = {{"value", nullptr}};
    }
  }
  encoding["color"] = std::move(colour);
  json spec = {{"$schema", "https://vega.github.io/schema/vega-lite/v5.json"},
               {"data", {{"values", values_of(chart, names)}}},
               {"mark", std::move(mark)},
               {"encoding", std::move(encoding)},
               {"width", kWidth},
               {"background", nullptr},
               {"config",
                {{"view", {{"stroke", nullptr}}},
                 {"axis",
                  {{"labelColor", kInk},
                   {"titleColor", kInk},
                   {"domainColor", kInk},
                   {"tickColor", kInk},
                   {"gridColor", kInk},
                   {"gridOpacity", 0.25}}},
                 {"legend", {{"labelColor", kInk}, {"titleColor", kInk}}},
                 {"title", {{"color", kInk}}}}}};
  if (chart.kind == ChartKind::line) spec["height"] = kHeight;
  if (!chart.title.empty()) spec["title"] = {{"text", chart.title}, {"anchor", "start"}};
  return spec;
}

std::string chart_svg(const Chart& chart) { return chart.kind == ChartKind::line ? lines_svg(chart) : bars_svg(chart); }

}  // namespace lockstep::shell
