// time_sync: what does synchronising gradients cost? A step with it against the same step without, in turn; the
// reductions alone; how much of them is hidden behind backward; what accumulating gradients would bring; and which rank
// is slow.
//
//   auto step = [&] { optimizer.zero_grad(); loss_of(net(x)).backward(); optimizer.step(); };
//   std::cout << inspect::time_sync(step, net, optimizer);             // on every rank; all is put back afterwards
#pragma once
#include <torch/torch.h>

#include <concepts>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "inspectors/exchange/options.h"
#include "inspectors/exchange/report.h"
#include "inspectors/subject/saved_state.h"
#include "inspectors/timing/time_sync_facts.h"

namespace lockstep::inspect {

struct TimeSyncOptions : InspectOptionsOf<TimeSyncOptions> {
  /// Findings call the step "step" where no name is given. The ranks are those that the step reduces over: others can't
  /// be chosen.
  TimeSyncOptions() { name_ = "step"; }
  /// Steps before the clock runs; at least 2 are run, since a wrapper lays out its buckets in the first two. 3 by
  /// default. Each costs a step.
  TORCH_ARG(int, warm_up) = 3;
  /// Steps of each kind that are timed; 1 or more, 15 by default. Each costs two steps and a repetition of the
  /// reductions.
  TORCH_ARG(int, steps) = 15;
  /// How many times slower than the median of the others a rank is that is called a straggler; 1.2 by default. Costs
  /// nothing.
  TORCH_ARG(double, straggler) = 1.2;
};

struct TimeSyncReport : Report {
  std::vector<StepTimes> ranks;  // by rank index
  double synchronised = 0, unsynchronised = 0;  // of the slowest rank, which the others wait for
  double exposed = 0;  // what synchronising adds to a step
  std::optional<Spread> reduction;  // the step's reductions alone, nothing else running; unset where they are not known
  int64_t reductions = 0, reduced_bytes = 0;  // of a step, on one rank
  std::optional<double> hidden;  // the part of `reduction` that costs nothing: 0 to 1
  std::vector<std::pair<int, double>> speed_up;  // steps to accumulate over, and how much faster that is per step
  int slowest = 0;
  double slower_by = 0;  // than the median of the others: 0.1 is 10%
};

/// A row for each rank, and what follows from them.
std::ostream& operator<<(std::ostream& out, const TimeSyncReport& report);

namespace detail {

/// What time_step works with, once the types are gone.
struct StepToTime {
  std::function<void(bool synchronise)> run;
  std::function<void()> keep, rewind, restore;  // state: as it is after the warm-up; back to that; back to what it was
  c10::intrusive_ptr<c10d::ProcessGroup> group;  // that reduces; null: the default group
};
/// What follows from the times of all ranks: the same on each.
void conclude(TimeSyncReport& report);
/// Whether the slowest rank is slower than the others' median by that, and beyond what times vary by: its lower
/// quartile lies above the others' upper one, the middle one of those.
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

/// `step` is a callable: of nothing, where a wrapper with no_sync() is among `state` (DistributedDataParallel, the
/// simple one); or of a bool that says whether to synchronise. `state` is what the step changes (see SavedState). Steps
/// of inspect::step are not counted.
///
/// Collective over the ranks of the wrapper's group, or all that are alive: the step's own collectives run there, and
/// the reductions alone. Ranks exchange their times over the inspectors' connections. Throws dist::ArgumentError where
/// there is nothing to leave out, for options outside their ranges and for other ranks than those; dist::PeerLeft when
/// a rank is lost meanwhile; and what the step throws.
template <typename Step, typename... State>
  requires(!std::same_as<std::remove_cvref_t<Step>, TimeSyncOptions>)
TimeSyncReport time_sync(const TimeSyncOptions& options, Step&& step, State&... state) {
  detail::StepToTime timed;
  detail::Scopes scopes;
  (detail::find_scopes(state, scopes, timed.group), ...);
  if constexpr (std::derived_from<std::remove_cvref_t<Step>, ddp::DistributedModule>) {
    // Its forward is a template, which asking whether it takes a bool would try to compile.
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

/// The same with all of `objects` as state that may be state: what a session's cells have defined.
template <typename Step, typename... Objects>
TimeSyncReport time_sync_among(const TimeSyncOptions& options, Step&& step, Objects&... objects) {
  return std::apply([&](auto&... state) { return time_sync(options, step, state...); },
                    std::tuple_cat(detail::only_restorable(objects)...));
}

}  // namespace lockstep::inspect
