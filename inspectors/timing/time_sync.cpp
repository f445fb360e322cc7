#include "inspectors/timing/time_sync.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>

#include "collectives/watch/spelling.h"
#include "inspectors/exchange/inspection.h"
#include "inspectors/exchange/participants.h"
#include "inspectors/findings/median.h"
#include "inspectors/findings/text.h"
#include "inspectors/timing/time_sync_findings.h"
#include "inspectors/trace/backward_clock.h"
#include "inspectors/trace/step_reductions.h"
#include "inspectors/trace/steps.h"
#include "inspectors/trace/time_mark.h"
#include "protocol/json_fields.h"

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

/// Has the measured times of this rank, in seconds.
struct Series {
  std::vector<double> synchronised, unsynchronised, forward, backward, rest, reduction;
};

class Timer {
 public:
  Timer(const detail::StepToTime& step, const TimeSyncOptions& options, Inspection& inspection)
      : step_(step), options_(options), inspection_(inspection) {}

  TimeSyncFacts run() {
    for (int i = 0; i < std::max(options_.warm_up(), 2); ++i) step_.run(true);
    step_.keep();
    find_reductions();
    for (int i = 0; i < options_.steps(); ++i) {
      time(true);
      time(false);
    }
    time_reductions();
    return facts();
  }
  const std::vector<StepReduction>& reductions() const { return reductions_; }

 private:
  void time(bool synchronise) {
    step_.rewind();
    clock_.reset();
    wait_for_device(device_);
    inspection_.exchange().barrier();
    // Between these two the host waits for the device only where the step itself does.
    const TimeMark begin(device_);
    step_.run(synchronise);
    const TimeMark end(device_);
    wait_for_device(device_);
    (synchronise ? series_.synchronised : series_.unsynchronised).push_back(begin.seconds_until(end));
    if (synchronise) return;
    const bool backward = clock_.ran();
    series_.forward.push_back(begin.seconds_until(backward ? clock_.begin() : end));
    series_.backward.push_back(backward ? clock_.begin().seconds_until(clock_.end()) : 0);
    series_.rest.push_back(backward ? clock_.end().seconds_until(end) : 0);
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
    // All ranks run them again, or none does.
    json mine = json::array();
    for (const StepReduction& each : reductions_) mine.push_back({each.op, each.dtype, each.shape, each.root});
    const auto lists = inspection_.exchange().gather_json(mine);
    if (mine.empty() || std::any_of(lists.begin(), lists.end(), [&](const json& each) { return each != mine; }))
      reductions_.clear();
  }

  void time_reductions() {
    if (reductions_.empty()) return;
    const ReductionsAlone alone(reductions_, step_.group);
    for (int i = -1; i < options_.steps(); ++i) {
      inspection_.exchange().barrier();
      const TimeMark begin(device_);
      alone.run();
      const TimeMark end(device_);
      wait_for_device(device_);
      if (i >= 0) series_.reduction.push_back(begin.seconds_until(end));
    }
  }

  TimeSyncFacts facts() const {
    TimeSyncFacts facts{.times = {.rank = inspection_.rank(),
                                  .synchronised = spread_of(series_.synchronised),
                                  .unsynchronised = spread_of(series_.unsynchronised),
                                  .forward = median(series_.forward),
                                  .backward = median(series_.backward),
                                  .rest = median(series_.rest)}};
    if (!series_.reduction.empty()) facts.reduction = spread_of(series_.reduction);
    return facts;
  }

  const detail::StepToTime& step_;
  const TimeSyncOptions& options_;
  Inspection& inspection_;
  const std::optional<c10::Device> device_ = current_accelerator();
  BackwardClock clock_{device_};
  const UncountedSteps uncounted_;
  Series series_;
  std::vector<StepReduction> reductions_;
};

}  // namespace

namespace detail {

void throw_nothing_to_leave_out() {
  throw dist::ArgumentError(inspect_name("time_sync") +
                            ": none of the arguments synchronises. Pass the wrapper that the step trains "
                            "(time_sync(step, net, optimizer)), or "
                            "a step that takes a bool: whether to synchronise");
}

void reduce_over(StepToTime& step, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  step.group = group_of_dist(group);
  step.ranks = group && step.group.handle ? RankSet(step.group.ranks) : live_ranks();
}

TimeSyncReport time_step(const StepToTime& step, const TimeSyncOptions& options) {
  if (options.steps() < 1)
    throw dist::ArgumentError(
        fmt::format("{}: {} steps? It takes 1 or more", inspect_name("time_sync"), options.steps()));
  if (options.ranks() && *options.ranks() != step.ranks)
    throw dist::ArgumentError(fmt::format(
        "{}: {} can't time the step alone: it reduces over {}. Leave the ranks out of the options, and call "
        "it on all of these",
        inspect_name("time_sync"), options.ranks()->words(), step.ranks.words()));
  TimeSyncReport report;
  Inspection inspection({.inspector = "time_sync", .object = options.name(), .ranks = step.ranks}, options);
  if (!inspection.takes_part()) return report;
  // Every rank has to be here before the step's own collectives run.
  if (inspection.exchange_facts(json())) {
    try {
      Timer timer(step, options, inspection);
      std::vector<TimeSyncFacts> facts;
      for (const json& each : inspection.exchange().gather_json(timer.run()))
        facts.push_back(each.get<TimeSyncFacts>());
      report = time_sync_numbers(facts);
      for (const StepReduction& each : timer.reductions()) {
        ++report.reductions;
        report.reduced_bytes += each.bytes;
      }
      inspection.add(time_sync_findings(inspection.about(), report, options.straggler()));
    } catch (...) {
      step.restore();
      throw;
    }
    step.restore();  // may raise: it calls the program's objects
  }
  inspection.conclude(report);
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
    out << fmt::format("slowest without synchronisation: rank {}, {} of the others\n", report.slowest,
                       above_median_text(report.slower_by));
  return out;
}

LOCKSTEP_JSON(Spread, median, low, high)
LOCKSTEP_JSON(StepTimes, rank, synchronised, unsynchronised, forward, backward, rest)
LOCKSTEP_DECLARED_JSON(TimeSyncFacts, times, reduction)

}  // namespace lockstep::inspect
