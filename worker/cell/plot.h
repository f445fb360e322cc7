// show::plot shows named series of numbers as a chart, which a notebook draws as a picture and a terminal in text.
//
//   show::plot({{"loss", losses}});                                     // vectors, tensors, any range of numbers
//   show::plot({{"train", train}, {"test", steps, test}}, {.title = "Loss", .x = "step"});
//   show::plot({{"speed-up", {1.0, 1.9, 3.6}}}, {.labels = {"1 rank", "2 ranks", "4 ranks"}});
//
// Ranks that plot different numbers get one chart in a notebook, with a series for each set of ranks.
#pragma once
#include <torch/torch.h>

#include <concepts>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace detail {

/// Takes a tensor of any real dtype, with one dimension or one element. Throws std::invalid_argument.
std::vector<double> plotted_numbers(const at::Tensor& tensor);

/// Takes numbers, or tensors with one element, as losses are kept.
template <typename R>
concept Plotted = std::ranges::input_range<const R> &&
                  (std::is_arithmetic_v<std::remove_cvref_t<std::ranges::range_value_t<const R>>> ||
                   std::same_as<std::remove_cvref_t<std::ranges::range_value_t<const R>>, at::Tensor>);

template <Plotted R>
std::vector<double> plotted_numbers(const R& values) {
  std::vector<double> numbers;
  for (const auto& value : values) {
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>)
      numbers.push_back(static_cast<double>(value));
    else
      numbers.push_back(value.template item<double>());
  }
  return numbers;
}

}  // namespace detail

/// A series: y at x = 0, 1, 2, … or at the x that are given, as many as y. NaN and Inf are gaps.
struct PlotSeries {
  PlotSeries(std::string name, std::vector<double> y) : name(std::move(name)), y(std::move(y)) {}
  template <typename Y>
    requires(detail::Plotted<Y> || std::same_as<Y, at::Tensor>)
  PlotSeries(std::string name, const Y& y) : name(std::move(name)), y(detail::plotted_numbers(y)) {}
  template <typename X, typename Y>
    requires((detail::Plotted<X> || std::same_as<X, at::Tensor>) && (detail::Plotted<Y> || std::same_as<Y, at::Tensor>))
  PlotSeries(std::string name, const X& x, const Y& y)
      : name(std::move(name)), x(detail::plotted_numbers(x)), y(detail::plotted_numbers(y)), has_x(true) {}

  std::string name;
  std::vector<double> x, y;
  bool has_x = false;
};

struct PlotOptions {
  std::string title, x, y;  // of the chart and of its axes; empty: none
  std::vector<std::string> labels;  // bars in place of lines: one label for each number
  bool stacked = false;  // of bars: on top of one another
};

/// Shows a chart of `series` as a value of the running cell. Local; from any thread. Of a series with more than 4,000
/// points, pairs of the least and the greatest of neighbours are shown. Throws std::invalid_argument without series, for
/// x or labels that are not as many as y, and for tensors that are no list of real numbers.
void plot(const std::vector<PlotSeries>& series, const PlotOptions& options = {}) __asm__("lockstep_cell_plot");

}  // namespace lockstep
