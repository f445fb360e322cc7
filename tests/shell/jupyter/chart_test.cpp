#include "protocol/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "shell/charts/chart_axis.h"
#include "shell/charts/chart_display.h"
#include "shell/charts/chart_text.h"
#include "shell/jupyter/displayed_data.h"

namespace lockstep::shell {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
const Screen kUnicode{.terminal = false, .colour = false, .unicode = true, .width = 80};
const Screen kAscii{.terminal = false, .colour = false, .unicode = false, .width = 80};

Chart falling(std::vector<double> y = {3, 2, 1}) {
  Chart chart;
  ChartSeries series{.name = "loss", .x = {}, .y = std::move(y), .begin = {}};
  for (size_t i = 0; i < series.y.size(); ++i) series.x.push_back(static_cast<double>(i));
  chart.series.push_back(series);
  return chart;
}

Chart bars(ChartKind kind) {
  Chart chart;
  chart.kind = kind;
  chart.categories = {"rank 0", "rank 1"};
  chart.series = {{.name = "a", .x = {}, .y = {4, 2}, .begin = {}}, {.name = "b", .x = {}, .y = {1, 1}, .begin = {}}};
  if (kind == ChartKind::span)
    for (ChartSeries& series : chart.series) series.begin = {0, 0.5};
  return chart;
}

TEST(Chart, ItsJsonFormGivesItBack) {
  Chart chart = falling({1, kNaN, std::numeric_limits<double>::infinity()});
  chart.title = "t";
  const json data = {{kChartMime, chart}};
  const std::string text = data.dump();  // would throw for bytes that are no text, and NaN would be null
  EXPECT_THAT(text, HasSubstr("\"y\":[1.0,\"nan\",\"inf\"]"));
  const auto again = chart_in(json::parse(text));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->title, "t");
  EXPECT_EQ(json(*again), json(chart));
  EXPECT_TRUE(is_plot(data));
}

TEST(Chart, DataThatAreNoneAreNone) {
  EXPECT_FALSE(chart_in(nullptr));
  EXPECT_FALSE(chart_in(json{{"a", 1}}));
  EXPECT_FALSE(chart_in(json{{kChartMime, 7}}));
  json form = falling();
  form["kind"] = "pie";
  EXPECT_FALSE(chart_in(json{{kChartMime, form}}));
  form = falling();
  form["series"][0]["x"].push_back(1);  // one more than y
  EXPECT_FALSE(chart_in(json{{kChartMime, form}}));
  form = bars(ChartKind::bar);
  form["categories"].push_back("rank 2");  // without numbers
  EXPECT_FALSE(chart_in(json{{kChartMime, form}}));
  form = bars(ChartKind::span);
  form["series"][0].erase("begin");
  EXPECT_FALSE(chart_in(json{{kChartMime, form}}));
  form.erase("series");
  EXPECT_FALSE(chart_in(json{{kChartMime, form}}));
}

TEST(Chart, ALineFallsInBrailleAndInAscii) {
  const std::string braille = chart_text(falling(), kUnicode, 30);
  EXPECT_THAT(braille, HasSubstr("⠢"));
  EXPECT_THAT(braille, HasSubstr("3 ┤"));
  EXPECT_THAT(braille, HasSubstr("1 ┤"));
  EXPECT_THAT(braille, HasSubstr("loss"));
  const std::string ascii = chart_text(falling(), kAscii, 30);
  EXPECT_THAT(ascii, HasSubstr("3 |*"));
  for (const char c : ascii) EXPECT_GE(c, 0) << ascii;
  EXPECT_LT(ascii.find("3 |*"), ascii.rfind('*'));
}

TEST(Chart, SeveralSeriesHaveSignsOfTheirOwnWithoutColours) {
  Chart chart = falling();
  chart.series.push_back({.name = "test", .x = {0, 1, 2}, .y = {1, 2, 3}, .begin = {}});
  EXPECT_THAT(chart_text(chart, kAscii, 40), HasSubstr("* loss   o test"));
  const std::string in_colours = chart_text(chart, {.colour = true, .unicode = true, .width = 80}, 40);
  EXPECT_THAT(in_colours, HasSubstr("\x1b["));
}

TEST(Chart, BarsShowTheirNumbers) {
  EXPECT_THAT(chart_text(bars(ChartKind::bar), kAscii, 60), HasSubstr("rank 0 |*"));
  const std::string stack = chart_text(bars(ChartKind::stack), kUnicode, 60);
  EXPECT_THAT(stack, HasSubstr("○ 5\n"));
  EXPECT_THAT(stack, HasSubstr("○ 3\n"));
  EXPECT_THAT(chart_text(bars(ChartKind::span), kUnicode, 60), HasSubstr(" 0.5–2\n"));
}

TEST(Chart, NothingFiniteIsSaidAndDoesNoHarm) {
  EXPECT_THAT(chart_text(falling({kNaN}), kUnicode), HasSubstr("no finite number"));
  EXPECT_THAT(chart_text(Chart{}, kUnicode), HasSubstr("no finite number"));
  for (const Chart& chart : {falling({kNaN}), Chart{}, falling({1e308, -1e308}), falling({5}), falling({0, 0})}) {
    EXPECT_THAT(chart_svg(chart), Not(HasSubstr("nan")));
    EXPECT_NO_THROW((void)chart_vega_lite(chart).dump());
    EXPECT_FALSE(chart_text(chart, kUnicode, 20).empty());
  }
}

TEST(Chart, TicksAreRoundNumbers) {
  EXPECT_THAT(ticks({.low = 0, .high = 10, .is_empty = false}, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(ticks({.low = -0.1, .high = 0.1, .is_empty = false}, 2), ElementsAre(-0.1, 0, 0.1));
}

TEST(Chart, RanksThatDifferAreSeriesOfOneChart) {
  const RankSet all{0, 1, 2};
  const auto chart = joined({{{0, 2}, falling()}, {{1}, falling({3, 3, 3})}}, all);
  ASSERT_TRUE(chart);
  ASSERT_EQ(chart->series.size(), 2u);
  EXPECT_EQ(chart->series[0].name, "loss · ranks 0,2");
  EXPECT_EQ(chart->series[1].name, "loss · rank 1");
  EXPECT_EQ(joined({{all, falling()}}, all)->series[0].name, "loss");
  EXPECT_FALSE(joined({{{0}, falling()}, {{1}, bars(ChartKind::bar)}}, all));
}

TEST(Chart, TextInPicturesIsNoMarkup) {
  Chart chart = falling();
  chart.title = "<b>&\"";
  EXPECT_THAT(chart_svg(chart), HasSubstr("&lt;b&gt;&amp;&quot;"));
}

TEST(Chart, ANotebookGetsItAsVegaLiteSvgAndText) {
  const RankSet all{0, 1};
  const auto value = [](const RankSet& ranks, const Chart& chart) {
    return ValueEvent{1, ranks, "plot of loss (3 numbers)", {{kChartMime, chart}}};
  };
  const json data = jupyter::value_data({value({0}, falling()), value({1}, falling({1, 2, 3}))}, all);
  EXPECT_THAT(data["text/plain"].get<std::string>(), HasSubstr("loss · rank 1"));
  EXPECT_THAT(data["image/svg+xml"].get<std::string>(), HasSubstr("<svg"));
  const json& spec = data[kVegaLiteMime];
  EXPECT_EQ(spec["mark"]["type"], "line");
  EXPECT_EQ(spec["data"]["values"].size(), 6u);
  EXPECT_EQ(spec["encoding"]["color"]["scale"]["domain"], json({"loss · rank 0", "loss · rank 1"}));
  EXPECT_EQ(data[jupyter::kValueMime]["values"].size(), 2u);
  // A report keeps its own text.
  const json report = {{"report", "memory"}, {kChartMime, bars(ChartKind::stack)}};
  const json shown = jupyter::value_data({ValueEvent{1, all, "a table", report}}, all);
  EXPECT_EQ(shown["text/plain"], "a table");
  EXPECT_FALSE(shown.contains(kVegaLiteMime));  // beside it, a frontend would not show the table
  const json picture = jupyter::chart_data({ValueEvent{1, all, "a table", report}}, all);
  EXPECT_EQ(picture[kVegaLiteMime]["encoding"]["x"]["stack"], "zero");
  EXPECT_TRUE(jupyter::chart_data({ValueEvent{1, all, "7", 7}}, all).is_null());
}

}  // namespace
}  // namespace lockstep::shell
