#include "shell/charts/chart_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "shell/charts/chart_axis.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr int kRows = 10;  // of a chart of lines
constexpr int kNarrowest = 20;
constexpr size_t kMostCategories = 40;  // rows of bars; the rest is counted

/// Returns what tells series apart where there are no colours.
const char* marker(size_t series, const Screen& screen) {
  static constexpr std::array<const char*, 8> kUnicode = {"●", "○", "■", "□", "▲", "△", "◆", "◇"};
  static constexpr std::array<const char*, 8> kAscii = {"*", "o", "+", "x", "#", "@", "%", "&"};
  return screen.unicode ? kUnicode[series % kUnicode.size()] : kAscii[series % kAscii.size()];
}

Style colour(size_t series) {
  static constexpr std::array<Style, 6> kStyles = {Style::keyword, Style::good,  Style::note,
                                                   Style::fault,   Style::magic, Style::type_name};
  return kStyles[series % kStyles.size()];
}

std::string at_right(std::string_view text, int width) {
  return std::string(static_cast<size_t>(std::max(0, width - text_width(text))), ' ') + std::string(text);
}
std::string at_left(std::string_view text, int width) {
  return std::string(text) + std::string(static_cast<size_t>(std::max(0, width - text_width(text))), ' ');
}

std::string utf8_of(uint32_t code) { return to_utf8(std::wstring(1, static_cast<wchar_t>(code))); }

/// Is a field of dots, `across` × `down` for each character: 2 × 4 in Braille, else one marker.
class Canvas {
 public:
  Canvas(int columns, const Screen& screen, bool in_dots)
      : columns_(columns), screen_(screen), in_dots_(in_dots), cells_(static_cast<size_t>(columns) * kRows) {}

  int width() const { return columns_ * (in_dots_ ? 2 : 1); }
  int height() const { return kRows * (in_dots_ ? 4 : 1); }

  void dot(int x, int y, size_t series) {  // y from below
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    const int from_top = height() - 1 - y;
    const int across = in_dots_ ? 2 : 1, down = in_dots_ ? 4 : 1;
    Cell& cell = cells_[index_of(from_top / down, x / across)];
    static constexpr std::array<std::array<int, 2>, 4> kBits = {
        {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    cell.dots |= in_dots_ ? kBits[static_cast<size_t>(from_top % 4)][static_cast<size_t>(x % 2)] : 1;
    cell.series = series;
  }

  void line(int x0, int y0, int x1, int y1, size_t series) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps, series);
  }

  std::string row(int index, bool in_colours) const {
    std::string result;
    for (int x = 0; x < columns_; ++x) {
      const Cell& cell = cells_[index_of(index, x)];
      const std::string sign = cell.dots == 0 ? " "
                               : in_dots_     ? utf8_of(0x2800 + static_cast<uint32_t>(cell.dots))
                                              : marker(cell.series, screen_);
      result += cell.dots != 0 && in_colours ? paint(screen_, colour(cell.series), sign) : sign;
    }
    while (result.ends_with(' ')) result.pop_back();
    return result;
  }

 private:
  size_t index_of(int row, int column) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }

  struct Cell {
    int dots = 0;
    size_t series = 0;
  };
  int columns_;
  Screen screen_;
  bool in_dots_;
  std::vector<Cell> cells_;
};

std::string legend(const Chart& chart, const Screen& screen, bool in_colours) {
  if (chart.series.empty() || (chart.series.size() == 1 && chart.series[0].name.empty())) return "";
  std::string text;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const std::string sign = in_colours ? paint(screen, colour(i), screen.unicode ? "━" : marker(i, screen))
                             : chart.series.size() > 1 || chart.kind == ChartKind::stack ? marker(i, screen)
                                                                                         : "";
    text += (i > 0 ? "   " : "") + sign + (sign.empty() ? "" : " ") + chart.series[i].name;
  }
  return text + "\n";
}

std::string lines_text(const Chart& chart, const Screen& screen, int columns) {
  const Range xs = x_range(chart), ys = y_range(chart);
  const bool in_colours = screen.colour && chart.series.size() > 1;
  const std::string top = number_text(ys.high), bottom = number_text(ys.low);
  const int margin = std::max(text_width(top), text_width(bottom));
  const int wide = std::max(kNarrowest, columns - margin - 2);
  // Dots can't say whose they are: without colours, several series have signs of their own.
  Canvas canvas(wide, screen, screen.unicode && (in_colours || chart.series.size() <= 1));
  for (size_t s = 0; s < chart.series.size(); ++s) {
    const ChartSeries& series = chart.series[s];
    int last_x = 0, last_y = 0;
    bool joins = false;
    for (size_t i = 0; i < series.y.size(); ++i) {
      if (!std::isfinite(series.y[i]) || !std::isfinite(series.x[i])) {
        joins = false;
        continue;
      }
      const int x = static_cast<int>(std::lround(xs.part_of(series.x[i]) * (canvas.width() - 1)));
      const int y = static_cast<int>(std::lround(ys.part_of(series.y[i]) * (canvas.height() - 1)));
      canvas.line(joins ? last_x : x, joins ? last_y : y, x, y, s);
      last_x = x;
      last_y = y;
      joins = true;
    }
  }
  const char* bar = screen.unicode ? "┤" : "|";
  std::string text;
  if (!chart.y_label.empty()) text += at_right("", margin + 2) + chart.y_label + "\n";
  for (int i = 0; i < kRows; ++i) {
    const std::string label = i == 0 ? top : i == kRows - 1 ? bottom : "";
    text += at_right(label, margin) + " " + (label.empty() ? (screen.unicode ? "│" : "|") : bar) +
            canvas.row(i, in_colours) + "\n";
  }
  std::string axis;
  for (int i = 0; i < wide; ++i) axis += screen.unicode ? "─" : "-";
  text += at_right("", margin + 1) + (screen.unicode ? "└" : "+") + axis + "\n";
  const std::string from = number_text(xs.low), to = number_text(xs.high);
  const int room = wide - text_width(from) - text_width(to);
  const std::string name = chart.x_label.empty() || text_width(chart.x_label) + 4 > room ? "" : chart.x_label;
  const int before = (room - text_width(name)) / 2;
  text += at_right("", margin + 2) + from + at_left("", before) + name + at_left("", room - before - text_width(name)) +
          to + "\n";
  return text + at_right("", legend(chart, screen, in_colours).empty() ? 0 : margin + 2) +
         legend(chart, screen, in_colours);
}

/// Draws a bar from one part of the width to another, in eighths of a character where there are such.
std::string bar_text(double from, double to, int wide, const Screen& screen, const char* full) {
  const int begin = static_cast<int>(std::lround(std::clamp(from, 0.0, 1.0) * wide));
  if (!screen.unicode || full[0] != '\0') {
    const int end =
        std::max(begin + (to > from ? 1 : 0), static_cast<int>(std::lround(std::clamp(to, 0.0, 1.0) * wide)));
    std::string text(static_cast<size_t>(begin), ' ');
    for (int i = begin; i < std::min(end, wide); ++i) text += full[0] != '\0' ? full : "#";
    return text;
  }
  const int eighths = static_cast<int>(std::lround((std::clamp(to, 0.0, 1.0) * wide - begin) * 8));
  std::string text(static_cast<size_t>(begin), ' ');
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  if (eighths % 8 > 0) text += utf8_of(0x2590 - static_cast<uint32_t>(eighths % 8));  // ▏ to ▉
  return text;
}

std::string bars_text(const Chart& chart, const Screen& screen, int columns) {
  const Range range = y_range(chart);
  int margin = 0;
  for (const std::string& each : chart.categories) margin = std::max(margin, text_width(each));
  margin = std::min(margin, std::max(8, columns / 3));
  const bool in_colours = screen.colour;
  const bool has_signs = chart.series.size() > 1;
  constexpr int kNumber = 12;
  const int wide = std::max(kNarrowest, columns - margin - 3 - kNumber);
  std::string text;
  const size_t shown = std::min(chart.categories.size(), kMostCategories);
  for (size_t i = 0; i < shown; ++i) {
    const std::string name = at_left(fitting(chart.categories[i], margin), margin) + (screen.unicode ? " │" : " |");
    const std::string none = at_left("", margin) + (screen.unicode ? " │" : " |");
    if (chart.kind == ChartKind::stack) {
      std::string bar;
      double sum = 0;
      int drawn = 0;
      for (size_t s = 0; s < chart.series.size(); ++s) {
        const double value = chart.series[s].y[i];
        if (!std::isfinite(value)) continue;
        sum += value;
        const int end = static_cast<int>(std::lround(std::clamp(range.part_of(sum), 0.0, 1.0) * wide));
        std::string part;
        for (; drawn < end; ++drawn) part += in_colours && screen.unicode ? "█" : marker(s, screen);
        bar += in_colours ? paint(screen, colour(s), part) : part;
      }
      text += name + bar + " " + number_text(sum) + "\n";
      continue;
    }
    bool is_first = true;
    for (size_t s = 0; s < chart.series.size(); ++s) {
      const double value = chart.series[s].y[i];
      if (!std::isfinite(value)) continue;
      const double from = chart.kind == ChartKind::span ? chart.series[s].begin[i] : 0;
      if (!std::isfinite(from)) continue;
      const std::string bar = bar_text(range.part_of(std::min(from, value)), range.part_of(std::max(from, value)), wide,
                                       screen, has_signs && !in_colours ? marker(s, screen) : "");
      const std::string number = chart.kind == ChartKind::span
                                     ? number_text(from) + (screen.unicode ? "–" : "-") + number_text(value)
                                     : number_text(value);
      text += (is_first ? name : none) + (in_colours ? paint(screen, colour(s), bar) : bar) + " " + number + "\n";
      is_first = false;
    }
    if (is_first) text += name + "\n";
  }
  if (shown < chart.categories.size())
    text += fmt::format("{} and {} more\n", screen.unicode ? "…" : "...", chart.categories.size() - shown);
  if (!chart.y_label.empty()) text += at_left("", margin + 2) + chart.y_label + "\n";
  const std::string names = has_signs || !chart.series.empty() ? legend(chart, screen, in_colours) : "";
  return text + (names.empty() ? "" : at_left("", margin + 2) + names);
}

}  // namespace

std::string chart_text(const Chart& chart, const Screen& screen, int columns) {
  const std::string title = chart.title.empty() ? "" : paint(screen, Style::bold, chart.title) + "\n";
  const bool has_points = std::any_of(chart.series.begin(), chart.series.end(), [](const ChartSeries& series) {
    return std::any_of(series.y.begin(), series.y.end(), [](double value) { return std::isfinite(value); });
  });
  if (!has_points) return title + "(nothing to plot: no finite number)\n";
  const int wide = std::max(kNarrowest, screen.width > 0 ? std::min(columns, screen.width - 1) : columns);
  return title + (chart.kind == ChartKind::line ? lines_text(chart, screen, wide) : bars_text(chart, screen, wide));
}

}  // namespace lockstep::shell
