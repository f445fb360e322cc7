#include "benchmarks/session/measurement.h"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

namespace lockstep::benchmark {

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void report(const std::string& what, int ranks, const std::string& unit, const std::vector<double>& values) {
  std::cout
      << nlohmann::json{{"subject", "lockstep"}, {"what", what}, {"ranks", ranks}, {"unit", unit}, {"values", values}}
      << std::endl;
}

}  // namespace lockstep::benchmark
