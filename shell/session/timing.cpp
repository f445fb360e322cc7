#include "shell/session/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::shell {

std::string duration_text(double ms) {
  if (ms >= 60'000) return fmt::format("{:.0f} min {:.0f} s", std::floor(ms / 60'000), std::fmod(ms, 60'000) / 1000);
  if (ms >= 1000) return fmt::format("{:.3g} s", ms / 1000);
  if (ms >= 1) return fmt::format("{:.3g} ms", ms);
  if (ms >= 0.001) return fmt::format("{:.3g} µs", ms * 1000);
  return fmt::format("{:.0f} ns", ms * 1'000'000);
}

TimeReport time_report(const CodeResult& result) {
  TimeReport report;
  nlohmann::json by_rank = nlohmann::json::object();
  if (result.compile_ms > 0) report.text = "compile  " + duration_text(result.compile_ms) + "\n";
  for (const auto& [rank, ms] : result.run_ms) {
    report.text += fmt::format("rank {:<3} {}\n", rank, duration_text(ms));
    by_rank[std::to_string(rank)] = ms;
  }
  report.data = {{"compile_ms", result.compile_ms}, {"run_ms", by_rank}};
  if (!result.run_ms.empty()) {
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [fastest, slowest] = std::minmax_element(result.run_ms.begin(), result.run_ms.end(), less);
    const double spread = slowest->second - fastest->second;
    report.data["min_ms"] = fastest->second;
    report.data["max_ms"] = slowest->second;
    report.data["spread_ms"] = spread;
    if (result.run_ms.size() > 1)
      report.text +=
          fmt::format("spread   {} (rank {} to rank {})\n", duration_text(spread), fastest->first, slowest->first);
  }
  if (!report.text.empty()) report.text.pop_back();
  return report;
}

namespace {

// One measurement should take at least this, so that the clock and the way to the run thread do not show.
constexpr double kLongEnough_ms = 5;
constexpr double kWholeTime_ms = 1000;
constexpr size_t kFewestRuns = 5, kMostRuns = 200;
constexpr int64_t kMostLoops = 10'000'000;

using Samples = std::map<int, std::vector<double>>;   // rank → ms of each run

/// Runs the body, so many times at once, until there are runs enough. Returns nothing when it went wrong; the error has been emitted.
Samples measure(SessionCore& session, int64_t loops, const std::string& body, const CellSettings& settings, int line,
                size_t fewest, double whole_ms, size_t most = kMostRuns) {
  std::string code = body;
  if (settings.language.value_or(session.language()) == Language::python) {
    // What it assigns is local to it, as in IPython.
    code = fmt::format("__import__('timeit').Timer({}, globals=globals()).timeit({});",
                       nlohmann::json(body).dump(-1, ' ', /*ensure_ascii=*/true), loops);
  } else {
    const std::string head =
        loops > 1 ? fmt::format("for (long lockstep_loop = 0; lockstep_loop < {}; ++lockstep_loop) ", loops) : "";
    // The brace stands on the magic's line, so that the body's lines and columns hold.
    code.replace(static_cast<size_t>(line - 1), 0, head + "{");
    code += "}\n";
  }
  Samples samples;
  double total = 0;
  const auto result = session.run_code(code, settings, 1, [&](const std::map<int, double>& run_ms) {
    double slowest = 0;
    for (const auto& [rank, ms] : run_ms) {
      samples[rank].push_back(ms);
      slowest = std::max(slowest, ms);
    }
    total += slowest;
    const size_t runs = samples.begin()->second.size();
    return (runs >= fewest && total >= whole_ms) || runs >= most;
  });
  if (result.status != CellStatus::ok) samples.clear();
  return samples;
}

}  // namespace

void timeit(SessionCore& session, const std::string& body, const CellSettings& settings, int line) {
  const Repeats repeats = settings.timeit.value_or(Repeats());
  const auto measure_loops = [&](int64_t count) {
    if (const auto runs = static_cast<size_t>(repeats.runs); runs > 0)
      return measure(session, count, body, settings, line, runs, 0, runs);
    return measure(session, count, body, settings, line, kFewestRuns, kWholeTime_ms);
  };
  int64_t loops = repeats.loops;
  if (loops == 0) {
    // The first run pays for caches and lazy set-up, and is left out.
    const Samples trial = measure(session, 1, body, settings, line, 3, 0);
    if (trial.empty()) return;
    double once = 0;
    for (const auto& [rank, ms] : trial) once = std::max(once, *std::min_element(ms.begin() + 1, ms.end()));
    // The number is a power of ten: few enough that `lockstep build` compiles them all.
    loops = 1;
    while (static_cast<double>(loops) * once < kLongEnough_ms && loops < kMostLoops) loops *= 10;
    if (session.options().rehearsal)
      for (int64_t count = kMostLoops; count > 1; count /= 10) measure_loops(count);
  }
  const Samples samples = measure_loops(loops);
  if (samples.empty()) return;

  std::string text;
  nlohmann::json by_rank = nlohmann::json::object();
  for (const auto& [rank, ms] : samples) {
    const double n = static_cast<double>(ms.size());
    double mean = 0, square = 0;
    for (double x : ms) mean += x / n;
    for (double x : ms) square += (x - mean) * (x - mean) / n;
    const double scale = 1.0 / static_cast<double>(loops);
    const double best = *std::min_element(ms.begin(), ms.end()) * scale;
    text += fmt::format("rank {:<3} {} ± {} per loop, best {}\n", rank, duration_text(mean * scale),
                        duration_text(std::sqrt(square) * scale), duration_text(best));
    by_rank[std::to_string(rank)] = {
        {"mean_ms", mean * scale}, {"deviation_ms", std::sqrt(square) * scale}, {"best_ms", best}};
  }
  const size_t runs = samples.begin()->second.size();
  text += fmt::format("mean ± deviation of {} runs, {} loop{} each", runs, loops, loops == 1 ? "" : "s");
  session.message(std::move(text), {{"runs", runs}, {"loops", loops}, {"ranks", by_rank}});
}

}  // namespace lockstep::shell
