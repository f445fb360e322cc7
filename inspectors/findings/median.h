// Computes the median of a list of numbers.
#pragma once
#include <algorithm>
#include <vector>

namespace lockstep::inspect {

/// Returns the mean of the two middle values for an even count, and 0 for an empty list.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace lockstep::inspect
