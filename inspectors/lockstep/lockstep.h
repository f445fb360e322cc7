// lockstep finds the first operator at which replicas diverge, or at which two runs of a step differ.
//
//   inspect::lockstep([&] { net(x).sum().backward(); optimizer.step(); }, net, optimizer);  // twice, from one state
//   inspect::lockstep_ranks([&] { train_step(); }, net);                                     // once, ranks compared
//
// Inputs and outputs of every operator, forward and backward, are fingerprinted while it runs; the sequences of
// operators are compared after the step. No tensor is kept, and nothing is exchanged while the step runs.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "inspectors/exchange/report.h"
#include "inspectors/subject/saved_state.h"
#include "inspectors/trace/step_state.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

struct LockstepOptions : InspectOptionsOf<LockstepOptions> {
  /// Whether ranks may have left the step before its end. Operators that a rank did not reach are then no finding.
  /// False by default. Costs nothing.
  TORCH_ARG(bool, cut_short) = false;
#define LOCKSTEP_OPTION LOCKSTEP_OPTION_FIELD
#include "inspectors/options/lockstep.def"
};

namespace detail {

Report lockstep_twice(const std::function<void()>& step, const SavedState& saved, const TensorNames& names,
                      const LockstepOptions& options);
Report lockstep_once(const std::function<void()>& step, const TensorNames& names, const LockstepOptions& options);

}  // namespace detail

/// Runs `step` twice from the same `state` (as for replay(): modules, holders, wrappers, optimizers, tensors; always
/// the generators), and restores it. Different outputs from equal inputs are a fault. If the second run reads values
/// that are not in `state` and have changed, that is a note. Collective over the ranks of the options (a
/// LockstepOptions anywhere among `state`): each rank compares its own two runs, and the report is the same on all.
template <typename Step, typename... State>
Report lockstep(Step&& step, State&&... state) {
  TensorNames names;
  detail::name_all<LockstepOptions>(names, state...);
  SavedState saved;
  detail::save_all<LockstepOptions>(saved, state...);
  return detail::lockstep_twice([&] { step(); }, saved, names, detail::options_among<LockstepOptions>(state...));
}

/// Runs `step` once and compares the ranks' operators; `objects` give parameters their names. Collective, as above.
/// Nothing is restored.
template <typename Step, typename... Objects>
Report lockstep_ranks(Step&& step, const Objects&... objects) {
  TensorNames names;
  detail::name_all<LockstepOptions>(names, objects...);
  return detail::lockstep_once([&] { step(); }, names, detail::options_among<LockstepOptions>(objects...));
}

/// What runs between these two on the calling thread is recorded. end_lockstep() is collective, as lockstep_ranks();
/// without a recording it returns an empty report.
void begin_lockstep(const LockstepOptions& options = {});
Report end_lockstep(const TensorNames& names, const LockstepOptions& options = {});
/// Ends the recording without a comparison. Local.
void drop_lockstep();

/// Lists objects that the cells of a session have defined and that a step may change. They are saved if SavedState can
/// save them, and with the names of their parameters.
class StateList {
 public:
  template <typename T>
  StateList& add(const std::string& name, T& object) {
    detail::learn_names(names_, name, object);
    if constexpr (detail::restorable<std::remove_cv_t<T>>()) saved_.save_any(object);
    return *this;
  }
  const TensorNames& names() const { return names_; }
  const SavedState& saved() const { return saved_; }

 private:
  TensorNames names_;
  SavedState saved_;
};

/// Does what lockstep() does, for `%%lockstep --self`.
Report lockstep_self(const std::function<void()>& step, const StateList& state, const LockstepOptions& options = {});

}  // namespace lockstep::inspect
