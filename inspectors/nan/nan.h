// nan: where did the first NaN or Inf come from?
//
//   inspect::replay([&] { auto loss = net(x).sum(); loss.backward(); optimizer.step(); return loss; }, net, optimizer);
//   auto watching = inspect::nan_watch(net);  // cheap: losses, gradients and updated parameters, while `watching` lives
//
// replay() runs a step that has gone wrong once more, operator by operator, from the state it began with, and names the
// operator that made the first bad value which reached a result. The watch says in which step it begins.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "inspectors/exchange/options.h"
#include "inspectors/exchange/report.h"
#include "inspectors/subject/saved_state.h"
#include "inspectors/trace/step_state.h"
#include "inspectors/trace/tensor_names.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

struct NanOptions : InspectOptionsOf<NanOptions> {};

namespace detail {

/// What `step` returned, as far as it is tensors.
template <typename Step>
std::vector<at::Tensor> run_step(Step& step) {
  using Result = std::invoke_result_t<Step&>;
  if constexpr (std::is_convertible_v<Result, at::Tensor>) {
    return {at::Tensor(step())};
  } else if constexpr (std::is_convertible_v<Result, std::vector<at::Tensor>>) {
    return step();
  } else {
    step();
    return {};
  }
}

Report replay_traced(const std::function<std::vector<at::Tensor>()>& step, const SavedState& saved,
                     const TensorNames& names, const NanOptions& options);

}  // namespace detail

/// Runs `step` once, traced, and puts `state` (modules, holders, DDP wrappers, optimizers, tensors; their gradients;
/// the generators always) back to what it was before. Everything else that the step does is done again: files, data
/// loaders, counters of a DDP wrapper, collectives. What it returns (a loss, tensors) counts as its result. Collective
/// over the options' ranks (a NanOptions anywhere among `state`): `step` runs on all of them, and the report is the
/// same on all. What `step` throws is thrown, after the state was put back.
template <typename Step, typename... State>
Report replay(Step&& step, State&&... state) {
  const auto options = detail::options_among<NanOptions>(state...);
  TensorNames names;
  detail::name_all<NanOptions>(names, state...);
  SavedState saved;
  detail::save_all<NanOptions>(saved, state...);
  return detail::replay_traced([&] { return detail::run_step(step); }, saved, names, options);
}

/// A cell between these two is traced, on the thread that runs it; a trace that is under way is given up for the new
/// one. end_nan_trace() is collective as replay() is, and changes nothing where begin_nan_trace() was not called: then,
/// and for a rank that is not among the options', the report is empty.
void begin_nan_trace();
Report end_nan_trace(const TensorNames& names, const NanOptions& options = {});
/// Ends the trace, and says nothing of it. Local.
void drop_nan_trace();

/// The names of modules, holders and wrappers among `objects`, in the order and under the names given: what the
/// session's magics pass on. Other objects have none.
class NameList {
 public:
  template <typename T>
  NameList& add(const std::string& name, const T& object) {
    detail::learn_names(names_, name, object);
    return *this;
  }
  const TensorNames& names() const { return names_; }
  operator const TensorNames&() const { return names_; }  // NOLINT: it is its names

 private:
  TensorNames names_;
};

/// What a watch has seen.
struct NanWatchStatus {
  bool on = false;
  int64_t steps = 0;  // updates of parameters after a backward
  int64_t gradients = 0, parameters = 0, losses = 0;  // looked at
  int64_t bad_steps = 0;
  double seconds = 0;  // that looking took
};

/// Looks while it lives, on the thread that made it (and autograd's on its behalf).
class [[nodiscard]] NanWatch {
 public:
  explicit NanWatch(TensorNames names);
  ~NanWatch();
  NanWatch(NanWatch&&) noexcept;
  NanWatch& operator=(NanWatch&&) = delete;
  NanWatchStatus status() const;
  /// What parameters are called from now on.
  void rename(const TensorNames& names);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Local: each rank looks at its own, and says on its own what it finds. Every loss that backward begins with, every
/// gradient as backward adds it up (before any reduction), every parameter as an optimizer writes it. Told once, and
/// again after a step that was good. `objects` (modules, wrappers) give parameters their names.
template <typename... T>
NanWatch nan_watch(const T&... objects) {
  TensorNames names;
  (detail::learn_names(names, "", objects), ...);
  return NanWatch(std::move(names));
}

/// One watch for the thread, as `%nan` turns it on and off.
void nan_on(const TensorNames& names);
void nan_off();
/// What it is to call parameters from now on; nothing where it is off.
void nan_names(const TensorNames& names);
/// A sentence.
std::string nan_status();

}  // namespace lockstep::inspect
