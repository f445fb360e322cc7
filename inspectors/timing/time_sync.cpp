#include "inspectors/timing/time_sync.h"

#include <fmt/format.h>

#include <torch/cuda.h>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <stdexcept>

#include "collectives/log/collective_log.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/findings/median.h"
#include "inspectors/trace/backward_clock.h"
#include "inspectors/trace/step_reductions.h"
#include "inspectors/trace/steps.h"

namespace lockstep::inspect {
namespace {

using nlohmann::json;

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    return values[static_cast<size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
  };
  return {median(values), at(0.25), at(0.75)};
}

json to_json(const Spread& spread) { return {spread.median, spread.low, spread.high}; }
Spread to_spread(const json& json) { return {json.at(0), json.at(1), json.at(2)}; }

/// What this rank's clock said.
struct Series {
  std::vector<double> synchronised, unsynchronised, forward, backward, rest, reduction;
};

class Timer {
 public:
  Timer(const detail::StepToTime& step, const TimeSyncOptions& options, Round& round)
      : step_(step), options_(options), round_(round) {}

  TimeSyncReport run() {
    for (int i = 0; i < std::max(options_.warm_up(), 2); ++i) step_.run(true);
    step_.keep();
    find_reductions();
    for (int i = 0; i < options_.steps(); ++i) {
      time(true);
      time(false);
    }
    time_reductions();
    return gather();
  }

 private:
  static void wait_for_device() {
    if (torch::cuda::is_available()) torch::cuda::synchronize();
  }

  void time(bool synchronise) {
    step_.rewind();
    clock_.reset();
    wait_for_device();
    round_.align();
    const int64_t begin = dist::monotonic_ns();
    step_.run(synchronise);
    wait_for_device();
    const int64_t end = dist::monotonic_ns();
    const auto seconds = [](int64_t from, int64_t to) { return static_cast<double>(to - from) * 1e-9; };
    (synchronise ? series_.synchronised : series_.unsynchronised).push_back(seconds(begin, end));
    if (synchronise) return;
    const bool backward = clock_.ran();
    series_.forward.push_back(seconds(begin, backward ? clock_.begin_ns() : end));
    series_.backward.push_back(backward ? seconds(clock_.begin_ns(), clock_.end_ns()) : 0);
    series_.rest.push_back(backward ? seconds(clock_.end_ns(), end) : 0);
  }

  void find_reductions() {
    step_.rewind();
    uint64_t before = collectives_so_far();
    step_.run(true);
    const auto all = reductions_since(before, step_.group);
    step_.rewind();
    before = collectives_so_far();
    step_.run(false);
    reductions_ = beyond(all, reductions_since(before, step_.group));
    // They are run again by all ranks or by none.
    json mine = json::array();
    for (const StepReduction& each : reductions_) mine.push_back({each.op, each.dtype, each.shape, each.root});
    const auto lists = round_.talk().exchange_json(mine);
    if (mine.empty() || std::any_of(lists.begin(), lists.end(), [&](const json& each) { return each != mine; }))
      reductions_.clear();
  }

  void time_reductions() {
    if (reductions_.empty()) return;
    const ReductionsAlone alone(reductions_, step_.group);
    for (int i = -1; i < options_.steps(); ++i) {
      round_.align();
      const int64_t begin = dist::monotonic_ns();
      alone.run();
      wait_for_device();
      if (i >= 0) series_.reduction.push_back(static_cast<double>(dist::monotonic_ns() - begin) * 1e-9);
    }
  }

  TimeSyncReport gather() {
    const auto all = round_.talk().exchange_json(
        {{"synchronised", to_json(spread_of(series_.synchronised))},
         {"unsynchronised", to_json(spread_of(series_.unsynchronised))},
         {"forward", median(series_.forward)},
         {"backward", median(series_.backward)},
         {"rest", median(series_.rest)},
         {"reduction", series_.reduction.empty() ? json() : to_json(spread_of(series_.reduction))}});
    TimeSyncReport report;
    for (size_t i = 0; i < all.size(); ++i) {
      const json& each = all[i];
      report.ranks.push_back({.rank = round_.ranks().ranks()[i],
                              .synchronised = to_spread(each.at("synchronised")),
                              .unsynchronised = to_spread(each.at("unsynchronised")),
                              .forward = each.at("forward"),
                              .backward = each.at("backward"),
                              .rest = each.at("rest")});
      if (each.at("reduction").is_null()) continue;
      // It is over when the last rank has it.
      const Spread reduction = to_spread(each.at("reduction"));
      if (!report.reduction || reduction.median > report.reduction->median) report.reduction = reduction;
    }
    for (const StepReduction& each : reductions_) {
      ++report.reductions;
      report.reduced_bytes += each.bytes;
    }
    return report;
  }

  const detail::StepToTime& step_;
  const TimeSyncOptions& options_;
  Round& round_;
  BackwardClock clock_;
  const UncountedSteps uncounted_;
  Series series_;
  std::vector<StepReduction> reductions_;
};

std::string percent(double part) { return fmt::format("{:.0f}%", part * 100); }

std::string summary(const TimeSyncReport& report) {
  std::string text = fmt::format("{} with synchronisation, {} without: {} exposed", time_text(report.synchronised),
                                 time_text(report.unsynchronised), time_text(report.exposed));
  if (report.reduction)
    text += fmt::format("; {} of {} alone take{} {}", counted(report.reductions, "reduction"),
                        bytes_text(static_cast<double>(report.reduced_bytes)), report.reductions == 1 ? "s" : "",
                        time_text(report.reduction->median));
  if (report.hidden) text += fmt::format(", of which {} hidden", percent(*report.hidden));
  return text;
}

void judge(const TimeSyncReport& report, const TimeSyncOptions& options, Round& round) {
  Finding ok = round.finding(Severity::note, "ok");
  ok.message = summary(report);
  round.add(std::move(ok));
  if (!detail::is_straggler(report, options.straggler())) return;
  Finding found = round.finding(Severity::note, "straggler");
  found.ranks = RankSet{report.slowest};
  found.reference_ranks = round.ranks() - found.ranks;
  found.message =
      fmt::format("rank {} needs {} for a step of its own, {} more than the others' median: they wait for it",
                  report.slowest, time_text(report.unsynchronised), percent(report.slower_by));
  round.add(std::move(found));
}

/// On its end state is as it was before, also by an exception.
struct PutBack {
  const detail::StepToTime& step;
  ~PutBack() { step.restore(); }
};

}  // namespace

namespace detail {

void throw_nothing_to_leave_out() {
  throw std::invalid_argument(
      "inspect::time_sync: nothing that synchronises is named. Pass the wrapper that the step trains "
      "(time_sync(step, net, optimizer)), or a step that takes a bool: whether to synchronise");
}

void conclude(TimeSyncReport& report) {
  std::vector<double> own;
  for (const StepTimes& each : report.ranks) {
    report.synchronised = std::max(report.synchronised, each.synchronised.median);
    own.push_back(each.unsynchronised.median);
  }
  const auto slowest = std::max_element(own.begin(), own.end());
  report.unsynchronised = *slowest;
  report.slowest = report.ranks[static_cast<size_t>(slowest - own.begin())].rank;
  if (own.size() > 1) {
    own.erase(slowest);
    report.slower_by = report.unsynchronised / median(own) - 1;
  }
  report.exposed = std::max(0.0, report.synchronised - report.unsynchronised);
  if (report.reduction && report.reduction->median > 0)
    report.hidden = std::clamp(1 - report.exposed / report.reduction->median, 0.0, 1.0);
  for (const int k : {2, 4, 8})
    report.speed_up.emplace_back(
        k, k * report.synchronised /
               ((k - 1) * std::min(report.unsynchronised, report.synchronised) + report.synchronised));
}

bool is_straggler(const TimeSyncReport& report, double threshold) {
  if (report.ranks.size() < 2 || report.slower_by < threshold - 1) return false;
  double low = 0;
  std::vector<double> high;
  for (const StepTimes& each : report.ranks) {
    if (each.rank == report.slowest)
      low = each.unsynchronised.low;
    else
      high.push_back(each.unsynchronised.high);
  }
  return low > median(high);
}

TimeSyncReport time_step(const StepToTime& step, const TimeSyncOptions& options) {
  if (options.steps() < 1)
    throw std::invalid_argument(fmt::format("inspect::time_sync: {} steps? It takes 1 or more", options.steps()));
  const auto start = std::chrono::steady_clock::now();
  TimeSyncReport report;
  const std::optional<RankSet> ranks = step.group && dist::is_initialized()
                                           ? std::optional(RankSet(dist::get_process_group_ranks(step.group)))
                                           : std::nullopt;
  Round round({.inspector = "time_sync", .object = options.name(), .ranks = ranks, .deadline = options.deadline()});
  if (!round.takes_part()) return report;
  if (round.open(nullptr)) {
    const PutBack put_back{step};
    report = Timer(step, options, round).run();
    conclude(report);
    judge(report, options, round);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  round.close(report, options.publish());
  return report;
}

}  // namespace detail

std::ostream& operator<<(std::ostream& out, const TimeSyncReport& report) {
  if (!session_shows_findings()) out << static_cast<const Report&>(report);
  if (report.ranks.empty()) return out;
  const auto range = [](const Spread& spread) {
    return fmt::format("{} ({} to {})", time_text(spread.median), time_text(spread.low), time_text(spread.high));
  };
  std::vector<std::vector<std::string>> rows = {
      {"rank", "synchronised", "not synchronised", "forward", "backward", "rest"}};
  for (const StepTimes& each : report.ranks)
    rows.push_back({std::to_string(each.rank), range(each.synchronised), range(each.unsynchronised),
                    time_text(each.forward), time_text(each.backward), time_text(each.rest)});
  out << table_text(rows) << "accumulating over";
  for (const auto& [k, faster] : report.speed_up)
    out << fmt::format("{} {} steps: {:.2f} x", k == 2 ? "" : ",", k, faster);
  out << '\n';
  if (report.ranks.size() > 1)
    out << fmt::format("slowest without synchronisation: rank {}, {} above the median of the others\n", report.slowest,
                       percent(report.slower_by));
  return out;
}

}  // namespace lockstep::inspect
