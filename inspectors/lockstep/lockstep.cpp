#include "inspectors/lockstep/lockstep.h"

#include "inspectors/lockstep/compare_runs.h"
#include "inspectors/lockstep/recording.h"
#include "inspectors/trace/steps.h"

namespace lockstep::inspect {
namespace {

constexpr int kMostUnrecordedRuns = 2;

thread_local std::unique_ptr<Recording> recording;

}  // namespace

Report detail::lockstep_once(const std::function<void()>& step, const TensorNames& names,
                             const LockstepOptions& options) {
  Recording run(options);
  step();
  run.end();
  return compare_ranks(run, names, options, "lockstep_ranks");
}

Report detail::lockstep_twice(const std::function<void()>& step, const SavedState& saved, const TensorNames& names,
                              const LockstepOptions& options) {
  const UncountedSteps uncounted;
  const auto run_and_restore = [&](Recording* recording) {
    const auto stop = [&] {
      if (recording) recording->trace.reset();
    };
    try {
      step();
    } catch (...) {  // passed on, once the state is restored
      stop();
      saved.restore();
      throw;
    }
    stop();
    saved.restore();
  };
  const auto recorded = [&] {
    Recording run(options);
    run_and_restore(&run);
    run.end();
    return run;
  };
  // Both runs begin with the same state of the wrappers: a new wrapper gets a new Reducer for each. A wrapper that has
  // run before lays out its buckets once, which can't be undone, so it does that in a run that is not recorded. (A step
  // without a backward does not lay out buckets, hence the limit.)
  for (int i = 0; i < kMostUnrecordedRuns && saved.buckets_are_unsettled(); ++i) run_and_restore(nullptr);
  const Recording first = recorded();
  const Recording second = recorded();
  return compare_runs(first, second, names, options, "lockstep");
}

void begin_lockstep(const LockstepOptions& options) {
  recording.reset();
  recording = std::make_unique<Recording>(options);
}

Report end_lockstep(const TensorNames& names, const LockstepOptions& options) {
  const std::unique_ptr<Recording> run = std::move(recording);
  if (!run) return {};
  run->end();
  return compare_ranks(*run, names, options, "end_lockstep");
}

void drop_lockstep() { recording.reset(); }

Report lockstep_self(const std::function<void()>& step, const StateList& state, const LockstepOptions& options) {
  return detail::lockstep_twice(step, state.saved(), state.names(), options);
}

}  // namespace lockstep::inspect
