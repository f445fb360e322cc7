// All drawings of a chart share these: the range of its numbers, ticks at round numbers, and several ranks' charts as
// one.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "protocol/chart.h"
#include "protocol/rank_set.h"

namespace lockstep::shell {

struct Range {
  double low = 0, high = 1;
  bool is_empty = true;  // no finite number is in it
  /// Takes a number in; NaN and Inf are left out.
  void take(double value);
  /// Returns 0 to 1 for a number within, and the nearer of the two for one outside.
  double part_of(double value) const { return std::clamp((value - low) / (high - low), 0.0, 1.0); }
};

/// These are of what is drawn, and never without width. Bars and spans begin at 0.
Range x_range(const Chart& chart);  // of lines
Range y_range(const Chart& chart);

/// Returns round numbers within the range, some `count` of them.
std::vector<double> ticks(const Range& range, int count);
/// Writes few digits; units as they come: 0.25, 1e-05, 12,000 is 12000.
std::string number_text(double value);

struct RankChart {
  RankSet ranks;
  Chart chart;
};
/// Makes one chart of all: each series once where all of `all` have it equal, else once for each set of ranks with its
/// ranks in the name. Charts that differ in their kind or categories can't be joined: the result is empty.
std::optional<Chart> joined(const std::vector<RankChart>& charts, const RankSet& all);

}  // namespace lockstep::shell
