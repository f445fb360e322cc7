#include "shell/events/value_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::shell {
namespace {

using nlohmann::json;

/// Writes whole numbers as they are; others with six significant digits, which tell ranks apart and can be read.
std::string written(const json& value) {
  return value.is_number_integer() ? value.dump() : fmt::format("{:.6g}", value.get<double>());
}

std::string ranks_in_words(const RankSet& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", ranks.str());
}

}  // namespace

ValueEvent range_of_values(int64_t cell, const std::map<int, json>& values) {
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const json least = std::min_element(values.begin(), values.end(), less)->second;
  const json most = std::max_element(values.begin(), values.end(), less)->second;
  RankSet ranks, lowest, highest;
  json by_rank = json::object();
  bool is_whole = true;
  double mean = 0;
  for (const auto& [rank, value] : values) {
    ranks.insert(rank);
    if (value == least) lowest.insert(rank);
    if (value == most) highest.insert(rank);
    by_rank[std::to_string(rank)] = value;
    is_whole = is_whole && value.is_number_integer();
    mean += value.get<double>() / static_cast<double>(values.size());
  }
  const double spread = most.get<double>() - least.get<double>();
  const json spread_data = is_whole && std::abs(spread) < 0x1p53 ? json(static_cast<int64_t>(spread)) : json(spread);
  ValueEvent event{.cell = cell, .ranks = ranks, .text = {}, .data = {}, .label = {}};
  event.text = fmt::format("{} to {} (spread {}, mean {}, lowest {}, highest {})", written(least), written(most),
                           written(spread_data), written(mean), ranks_in_words(lowest), ranks_in_words(highest));
  event.data = {{"values", std::move(by_rank)},
                {"min", least},
                {"max", most},
                {"spread", spread_data},
                {"mean", mean},
                {"lowest", lowest},
                {"highest", highest}};
  return event;
}

}  // namespace lockstep::shell
