// time_sync measures what synchronising gradients costs: a step with synchronisation and the same step without, in
// turn; the reductions alone; how much of them backward hides; what accumulating gradients would gain; and which rank
// is slow.
//
//   auto step = [&] { optimizer.zero_grad(); loss_of(net(x)).backward(); optimizer.step(); };
//   std::cout << inspect::time_sync(step, net, optimizer);             // on every rank; the state is restored
#pragma once
#include <torch/torch.h>
#include <concepts>
#include <functional>
#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/subject/saved_state.h"
#include "inspectors/trace/steps.h"

namespace lockstep::inspect {

/// Has the median and the quartiles, in seconds.
struct Spread {
  double median = 0, low = 0, high = 0;
};

struct StepTimes {
  int rank = 0;
  Spread synchronised, unsynchronised;
  /// Times of the step without synchronisation: before, during and after backward.
  double forward = 0, backward = 0, rest = 0;
};

struct TimeSyncFacts {
  StepTimes times;
  std::optional<Spread> reduction;  // the step's reductions without other work; unset if they are not known
};

void to_json(nlohmann::json& json, const TimeSyncFacts& facts);
void from_json(const nlohmann::json& json, TimeSyncFacts& facts);

struct TimeSyncOptions : InspectOptionsOf<TimeSyncOptions> {
  /// The default name is "step". The ranks are those that the step reduces over; no others can be chosen.
  TimeSyncOptions() { name_ = "step"; }
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_FIELD
#include "inspectors/options/time_sync.def"
};

struct TimeSyncReport : Report {
  std::vector<StepTimes> ranks;  // by rank index
  double synchronised = 0, unsynchronised = 0;  // seconds of a step on the slowest rank, for which the others wait
  double exposed = 0;  // seconds that synchronisation adds to a step
  std::optional<Spread> reduction;  // the step's reductions without other work; unset if they are not known
  int64_t reductions = 0, reduced_bytes = 0;  // of a step, on one rank
  std::optional<double> hidden;  // the part of `reduction` that adds nothing to the step: 0 to 1
  std::vector<std::pair<int, double>> speed_up;  // number of accumulated steps, and the speed-up of a step
  int slowest = 0;
  double slower_by = 0;  // relative to the median of the others: 0.1 is 10%
};

/// Prints a row for each rank, and the results.
std::ostream& operator<<(std::ostream& out, const TimeSyncReport& report);
/// Returns the report as the text of a JSON object, with a chart of it (docs/events.md).
std::string report_data(const TimeSyncReport& report);

namespace detail {

/// The step and its state without their types.
struct StepToTime {
  std::function<void(bool synchronise)> run;
  std::function<void()> keep;  // saves the state after the warm-up
  std::function<void()> rewind;  // restores that
  std::function<void()> restore;  // restores the state before the warm-up
  StepGroup group;  // that reduces
  RankSet ranks;  // that have to call
};
/// Sets the group to one of dist::, for null the default group, and the ranks to those of it that are live.
void reduce_over(StepToTime& step, const c10::intrusive_ptr<c10d::ProcessGroup>& group);
/// Derives the numbers of the report from the times of all ranks.
void conclude(TimeSyncReport& report);
/// Whether the slowest rank exceeds the median of the others by the threshold, and by more than times vary: its lower
/// quartile is above the median of the others' upper quartiles.
bool is_straggler(const TimeSyncReport& report, double threshold);
TimeSyncReport time_step(const StepToTime& step, const TimeSyncOptions& options);
[[noreturn]] void throw_nothing_to_leave_out();

template <typename T>
concept CanLeaveOutSync = requires(T& object) { object.no_sync(); };

using Scopes = std::vector<std::function<std::shared_ptr<void>()>>;

template <typename T>
void find_scopes(T& object, Scopes& scopes, c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if constexpr (CanLeaveOutSync<T>) {
    using Scope = decltype(object.no_sync());
    scopes.push_back([&object] { return std::shared_ptr<void>(std::shared_ptr<Scope>(new Scope(object.no_sync()))); });
    if constexpr (std::derived_from<std::remove_const_t<T>, ddp::DistributedModule>)
      if (!group) group = object.process_group();
  } else if constexpr (LeadsToObject<T>) {
    if (object) find_scopes(*object, scopes, group);
  }
}

}  // namespace detail

/// `step` is a callable without parameters if a wrapper with no_sync() is among `state` (DistributedDataParallel, the
/// simple class); or one with a bool: whether to synchronise. `state` is what the step changes (see SavedState). Steps
/// of inspect::step are not counted.
///
/// Collective over the ranks of the wrapper's group, or all live ranks: the step's own collectives run there, and the
/// reductions alone. Ranks exchange their times over the inspectors' connections. Throws dist::ArgumentError if there
/// is nothing to leave out, for options outside their ranges and for other ranks; dist::PeerLeft if a rank is lost
/// during the call; and what the step throws.
template <typename Step, typename... State>
  requires(!std::same_as<std::remove_cvref_t<Step>, TimeSyncOptions>)
TimeSyncReport time_sync(const TimeSyncOptions& options, Step&& step, State&... state) {
  detail::StepToTime timed;
  detail::Scopes scopes;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  (detail::find_scopes(state, scopes, group), ...);
  detail::reduce_over(timed, group);
  if constexpr (std::derived_from<std::remove_cvref_t<Step>, ddp::DistributedModule>) {
    // Not tested with std::invocable, which would compile its forward, a template, with a bool.
    static_assert(detail::kCantBeKept<Step>,
                  "inspect::time_sync: this is a wrapper, which is state; the step, a callable that trains once, comes "
                  "before it");
  } else if constexpr (std::invocable<Step&, bool>) {
    timed.run = [&step](bool synchronise) { step(synchronise); };
  } else {
    static_assert(std::invocable<Step&>,
                  "inspect::time_sync: the step is a callable of nothing, or of a bool that says "
                  "whether to synchronise");
    if (scopes.empty()) detail::throw_nothing_to_leave_out();
    timed.run = [&step, &scopes](bool synchronise) {
      std::vector<std::shared_ptr<void>> open;
      if (!synchronise)
        for (const auto& scope : scopes) open.push_back(scope());
      step();
    };
  }
  const SavedState before(state...);
  std::unique_ptr<SavedState> warm;
  timed.keep = [&] { warm = std::make_unique<SavedState>(state...); };
  timed.rewind = [&] { warm->rewind(); };
  timed.restore = [&] { before.restore(); };
  return detail::time_step(timed, options);
}

template <typename Step, typename... State>
  requires(!std::same_as<std::remove_cvref_t<Step>, TimeSyncOptions>)
TimeSyncReport time_sync(Step&& step, State&... state) {
  return time_sync(TimeSyncOptions(), std::forward<Step>(step), state...);
}

namespace detail {
template <typename T>
auto only_restorable(T& object) {
  if constexpr (restorable<std::remove_cv_t<T>>())
    return std::tie(object);
  else
    return std::tuple<>();
}
}  // namespace detail

/// Takes those of `objects` as state that SavedState can save: objects that a session's cells have defined.
template <typename Step, typename... Objects>
TimeSyncReport time_sync_among(const TimeSyncOptions& options, Step&& step, Objects&... objects) {
  return std::apply([&](auto&... state) { return time_sync(options, step, state...); },
                    std::tuple_cat(detail::only_restorable(objects)...));
}

}  // namespace lockstep::inspect
