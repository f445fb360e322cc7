// What a benchmark program reports: JSON lines on the standard output, which tools/bench reads and puts beside the goals.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace lockstep::benchmark {

/// Milliseconds since `start`.
double milliseconds_since(std::chrono::steady_clock::time_point start);

double median(std::vector<double> values);  // 0 for none

/// Writes {"subject":"lockstep","what":WHAT,"ranks":RANKS,"unit":UNIT,"values":[...]} and flushes.
/// The name says what was measured, with a point between its parts: "cell.value".
void report(const std::string& what, int ranks, const std::string& unit, const std::vector<double>& values);

}  // namespace lockstep::benchmark
