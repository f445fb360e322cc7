#include "worker/cell/plot.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "protocol/chart.h"
#include "worker/cell/values.h"

namespace lockstep {
namespace {

constexpr size_t kMostPoints = 4000;  // of a series; a screen has fewer columns

[[noreturn]] void refuse_plot(const std::string& what) { throw std::invalid_argument("show::plot: " + what); }

/// Keeps the shape of a long series: of each run of neighbours the least and the greatest, in their order.
void make_shorter(ChartSeries& series) {
  const size_t count = series.y.size();
  if (count <= kMostPoints) return;
  const size_t runs = kMostPoints / 2;
  ChartSeries kept{.name = series.name, .x = {}, .y = {}, .begin = {}};
  for (size_t run = 0; run < runs; ++run) {
    const size_t begin = count * run / runs, end = count * (run + 1) / runs;
    size_t least = begin, greatest = begin;
    for (size_t i = begin; i < end; ++i) {
      if (std::isnan(series.y[least]) || series.y[i] < series.y[least]) least = i;
      if (std::isnan(series.y[greatest]) || series.y[i] > series.y[greatest]) greatest = i;
    }
    for (const size_t i : {std::min(least, greatest), std::max(least, greatest)}) {
      kept.x.push_back(series.x[i]);
      kept.y.push_back(series.y[i]);
    }
  }
  series = std::move(kept);
}

}  // namespace

namespace detail {

std::vector<double> plotted_numbers(const at::Tensor& tensor) {
  if (!tensor.defined()) refuse_plot("a tensor is undefined");
  if (tensor.dim() > 1 && tensor.numel() > 1)
    refuse_plot("a tensor of " + std::to_string(tensor.dim()) + " dimensions is no series; .flatten() makes it one");
  if (tensor.is_complex())
    refuse_plot("numbers of a tensor are complex; torch::real() or torch::abs() makes them real");
  const at::Tensor flat = (tensor.layout() == at::kStrided ? tensor : tensor.to_dense())
                              .detach()
                              .to(at::kCPU, at::kDouble)
                              .flatten()
                              .contiguous();
  const auto* const data = flat.const_data_ptr<double>();
  return {data, data + flat.numel()};
}

}  // namespace detail

void plot(const std::vector<PlotSeries>& series, const PlotOptions& options) {
  if (series.empty()) refuse_plot("there is no series; show::plot({{\"loss\", losses}}) has one");
  const bool has_bars = !options.labels.empty();
  if (options.stacked && !has_bars) refuse_plot("stacked is for bars: .labels = {…} has a label for each of them");
  Chart chart{.kind = !has_bars         ? ChartKind::line
                      : options.stacked ? ChartKind::stack
                                        : ChartKind::bar,
              .title = options.title,
              .x_label = options.x,
              .y_label = options.y,
              .categories = options.labels,
              .series = {}};
  for (const PlotSeries& each : series) {
    const auto differs = [&](const char* what, size_t count) {
      refuse_plot("series '" + each.name + "' has " + std::to_string(each.y.size()) + " numbers and " +
                  std::to_string(count) + " " + what);
    };
    if (has_bars && each.y.size() != options.labels.size()) differs("labels", options.labels.size());
    if (each.has_x && each.x.size() != each.y.size()) differs("numbers of x", each.x.size());
    ChartSeries drawn{.name = each.name, .x = {}, .y = each.y, .begin = {}};
    if (!has_bars) {
      drawn.x = each.x;
      for (size_t i = drawn.x.size(); i < drawn.y.size(); ++i) drawn.x.push_back(static_cast<double>(i));
      make_shorter(drawn);
    }
    chart.series.push_back(std::move(drawn));
  }
  std::string text = "plot";
  for (size_t i = 0; i < series.size(); ++i)
    text += (i > 0 ? ", " : " of ") + (series[i].name.empty() ? "a series" : series[i].name) + " (" +
            std::to_string(series[i].y.size()) + (series[i].y.size() == 1 ? " number)" : " numbers)");
  worker::post_value({.text = std::move(text), .data = {{kChartMime, chart}}, .label = {}});
}

}  // namespace lockstep
