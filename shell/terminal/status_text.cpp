#include "shell/terminal/status_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace lockstep::shell {
namespace {

/// Is a loop on one rank, which has been in it for `seconds`.
struct RankLoop {
  int rank = 0;
  int64_t done = 0;
  std::optional<int64_t> total;
  double seconds = 0;
  double rate() const { return seconds > 0 ? static_cast<double>(done) / seconds : 0; }
  double part() const { return *total > 0 ? static_cast<double>(done) / static_cast<double>(*total) : 1; }
};

std::vector<RankLoop> loops_of(const ProgressEvent& event, double since_s) {
  std::vector<RankLoop> loops;
  for (const auto& [rank, done] : event.done) {
    RankLoop loop{.rank = rank, .done = done, .total = {}, .seconds = event.elapsed_s.at(rank)};
    if (const auto total = event.total.find(rank); total != event.total.end()) loop.total = total->second;
    const bool runs = event.state == LoopState::running && !(loop.total && done >= *loop.total);
    if (runs) loop.seconds += since_s;
    loops.push_back(loop);
  }
  return loops;
}

template <typename Value>
double mean(const std::vector<RankLoop>& loops, Value value) {
  double sum = 0;
  for (const RankLoop& loop : loops) sum += static_cast<double>(value(loop));
  return sum / static_cast<double>(loops.size());
}

std::string rate_text(double rate) {
  if (rate <= 0) return "";
  // Writes three digits, and no power of ten.
  const auto digits = [](double number) {
    return number < 999.5 ? fmt::format("{:.3g}", number) : fmt::format("{:.0f}", number);
  };
  return rate < 1 ? digits(1 / rate) + " s/it" : digits(rate) + " it/s";
}

/// Returns `12.3 s`, or `2:03` for what takes minutes.
std::string duration_text(double seconds) {
  return seconds < 60 ? fmt::format("{:.1f} s", seconds) : clock_text(seconds);
}

/// Names the slowest rank and the fastest, where they are not level: a rank that is a turn ahead is not, nor one that
/// took some hundredths of the time more.
std::string spread_text(const ProgressEvent& event, const std::vector<RankLoop>& loops, bool totals_known,
                        bool totals_equal) {
  if (loops.size() < 2) return "";
  constexpr double kLevel = 0.05, kLevel_s = 0.1;
  const auto say = [](const RankLoop& slow, const std::string& slow_text, const RankLoop& fast,
                      const std::string& fast_text) {
    return fmt::format("slowest rank {}: {}, fastest rank {}: {}", slow.rank, slow_text, fast.rank, fast_text);
  };
  const auto extremes = [&](auto value) {
    const auto [low, high] = std::minmax_element(
        loops.begin(), loops.end(), [&](const RankLoop& a, const RankLoop& b) { return value(a) < value(b); });
    return std::pair(*low, *high);
  };
  if (event.state == LoopState::completed) {
    const auto [fast, slow] = extremes([](const RankLoop& loop) { return loop.seconds; });
    if (slow.seconds - fast.seconds < std::max(kLevel_s, kLevel * slow.seconds)) return "";
    return say(slow, duration_text(slow.seconds), fast, duration_text(fast.seconds));
  }
  if (totals_known && !totals_equal) {
    const auto [slow, fast] = extremes([](const RankLoop& loop) { return loop.part(); });
    if (fast.part() - slow.part() < kLevel) return "";
    return say(slow, fmt::format("{:.0f}%", std::floor(100 * slow.part())), fast,
               fmt::format("{:.0f}%", std::floor(100 * fast.part())));
  }
  const auto [slow, fast] = extremes([](const RankLoop& loop) { return loop.done; });
  if (fast.done - slow.done < 2) return "";
  return say(slow, std::to_string(slow.done), fast, std::to_string(fast.done));
}

std::string in_collective(const ActivityEvent::Part& part) {
  std::string text = fmt::format("{} #{}", part.collective, part.seq);
  if (part.group != "default") text += fmt::format(" of group {}", part.group);
  return text;
}

std::string part_text(const ActivityEvent::Part& part) {
  if (part.state == "in_collective") return fmt::format("in {} for {}", in_collective(part), clock_text(part.since_s));
  if (part.state == "running" && !part.collective.empty())
    return fmt::format("running, {} in flight for {}", in_collective(part), clock_text(part.since_s));
  if (part.state == "running") return "running, in no collective";
  if (part.state == "connected") return "up, waiting for the compiler and the other ranks";
  return part.state;
}

std::string phase_text(const ActivityEvent& event) {
  using Phase = ActivityEvent::Phase;
  const std::string cell = event.cell > 0 ? fmt::format("cell {}", event.cell) : "the cell";
  switch (event.phase) {
    case Phase::over:
      return "";
    case Phase::starting:
      return "starting";
    case Phase::connecting:
      return "connecting the ranks for " + cell;
    case Phase::compiling:
      return "compiling " + cell;
    case Phase::loading:
      return "loading " + cell;
    case Phase::running:
      return cell + " running";
  }
  return "";
}

}  // namespace

std::string clock_text(double seconds) {
  const int64_t all = static_cast<int64_t>(std::max(0.0, seconds));
  if (all < 3600) return fmt::format("{}:{:02}", all / 60, all % 60);
  return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
}

std::string progress_text(const ProgressEvent& event, double since_s, const Screen& screen) {
  const std::vector<RankLoop> loops = loops_of(event, since_s);
  if (loops.empty()) return "";
  const bool totals_known = event.total.size() == loops.size();
  const bool totals_equal = totals_known && std::all_of(loops.begin(), loops.end(), [&](const RankLoop& loop) {
                              return loop.total == loops.front().total;
                            });
  const double done = mean(loops, [](const RankLoop& loop) { return loop.done; });
  const double total = totals_known ? mean(loops, [](const RankLoop& loop) { return *loop.total; }) : 0;
  double seconds = 0, left = 0;
  bool left_known = totals_known;
  for (const RankLoop& loop : loops) {
    seconds = std::max(seconds, loop.seconds);
    if (!left_known || loop.done >= *loop.total) continue;
    left_known = loop.rate() > 0;
    if (left_known) left = std::max(left, static_cast<double>(*loop.total - loop.done) / loop.rate());
  }
  std::string text;
  if (event.state == LoopState::stopped) text += "stopped at ";
  if (totals_known)
    text += fmt::format("{:.0f}% {:.0f}/{:.0f}", total > 0 ? std::floor(100 * std::min(1.0, done / total)) : 100.0,
                        std::floor(done), total);
  else
    text += fmt::format("{:.0f} it", std::floor(done));
  std::string times = clock_text(seconds);
  if (event.state == LoopState::running && left_known) times += "<" + clock_text(std::round(left));
  if (const std::string rate = rate_text(mean(loops, [](const RankLoop& loop) { return loop.rate(); })); !rate.empty())
    times += ", " + rate;
  std::string result = paint(screen, Style::bold, event.label);
  if (!result.empty()) result += "  ";
  result += text + " [" + times + "]";
  const std::string spread = spread_text(event, loops, totals_known, totals_equal);
  if (!spread.empty()) result += "  " + paint(screen, Style::dim, spread);
  return result;
}

std::vector<std::string> activity_rows(const ActivityEvent& event, const Screen& screen, bool in_one_row) {
  if (event.phase == ActivityEvent::Phase::over) return {};
  std::vector<std::string> rows = {fmt::format("{} for {}", phase_text(event), clock_text(event.elapsed_s))};
  if (event.step) {
    std::string step = fmt::format("building the precompiled header: step {} of {}, {}", event.step->number,
                                   event.step->count, event.step->what);
    // It was measured, and is no promise: the machine may be busier than it was.
    if (event.step->last_s) {
      const double all = *event.step->last_s;
      step += event.step_s <= all
                  ? fmt::format(", {} of {} as in the last build", clock_text(event.step_s), clock_text(all))
                  : fmt::format(", {}, longer than in the last build ({})", clock_text(event.step_s), clock_text(all));
    }
    rows.push_back(std::move(step));
  }
  for (const auto& part : event.parts) {
    if (part.ranks.empty()) continue;
    rows.push_back(fmt::format("{}: {}", part.ranks.words(), part_text(part)));
  }
  if (in_one_row) rows = {fmt::format("{}", fmt::join(rows, "; "))};
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = paint(screen, Style::dim, (i == 0 ? std::string(signs(screen).dots) + " " : "    ") + rows[i]);
  return rows;
}

}  // namespace lockstep::shell
