// nan finds where the first NaN or Inf comes from.
//
//   inspect::replay([&] { auto loss = net(x).sum(); loss.backward(); optimizer.step(); return loss; }, net, optimizer);
//   auto watching = inspect::nan_watch(net);  // cheap: checks losses, gradients and updated parameters
//
// The watch reports the step. replay() runs that step again from the same state, traces its operators, and names the
// one that made the first bad value (NaN or Inf) which reached a result.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "inspectors/exchange/report.h"
#include "inspectors/subject/saved_state.h"
#include "inspectors/trace/step_state.h"
#include "inspectors/trace/tensor_names.h"
#include "protocol/rank_set.h"

namespace lockstep::inspect {

struct NanOptions : InspectOptionsOf<NanOptions> {};

namespace detail {

/// Returns the tensors that `step` returns; none if it returns something else.
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

/// Runs `step` once, traced, and restores `state` (modules, holders, DDP wrappers, optimizers, tensors, with gradients;
/// always the generators). All other effects of the step happen again: files, data loaders, counters of a DDP wrapper,
/// collectives. What it returns (a loss, tensors) is its result. Collective over the ranks of the options (a NanOptions
/// anywhere among `state`): `step` runs on all of them, and the report is the same on all. Exceptions of `step` are
/// passed on after the state is restored.
template <typename Step, typename... State>
Report replay(Step&& step, State&&... state) {
  const auto options = detail::options_among<NanOptions>(state...);
  TensorNames names;
  detail::name_all<NanOptions>(names, state...);
  SavedState saved;
  detail::save_all<NanOptions>(saved, state...);
  return detail::replay_traced([&] { return detail::run_step(step); }, saved, names, options);
}

/// What runs between these two on the calling thread is traced; begin_nan_trace() drops a running trace.
/// end_nan_trace() is collective, as replay(); the report is empty without begin_nan_trace(), and on ranks that are not
/// among the options'.
void begin_nan_trace();
Report end_nan_trace(const TensorNames& names, const NanOptions& options = {});
/// Ends the trace without a report. Local.
void drop_nan_trace();

/// Lists the names of parameters of modules, holders and wrappers, as the session's magics pass them. Other objects
/// have none.
class NameList {
 public:
  template <typename T>
  NameList& add(const std::string& name, const T& object) {
    detail::learn_names(names_, name, object);
    return *this;
  }
  const TensorNames& names() const { return names_; }
  operator const TensorNames&() const { return names_; }  // NOLINT: no more than its names

 private:
  TensorNames names_;
};

struct NanWatchStatus {
  bool on = false;
  int64_t steps = 0;  // updates of parameters after a backward
  int64_t gradients = 0, parameters = 0, losses = 0;  // that were checked
  int64_t bad_steps = 0;
  double seconds = 0;  // spent in checks
};

/// Checks during its lifetime, on the thread that made it and on autograd's threads that work for it.
class [[nodiscard]] NanWatch {
 public:
  explicit NanWatch(TensorNames names);
  ~NanWatch();
  NanWatch(NanWatch&&) noexcept;
  NanWatch& operator=(NanWatch&&) = delete;
  /// Waits for the checks that devices have not finished.
  NanWatchStatus status() const;
  /// Sets the names of parameters.
  void rename(const TensorNames& names);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Local: each rank checks its own values and publishes its own findings. Checked are every loss that backward begins
/// with, every gradient when backward accumulates it (before the reduction), and every parameter when an optimizer
/// writes it. There is one finding, and another one after a step without bad values. On a device for which there are
/// functions (inspectors/device/functions.h) the checks run on the streams of the values, and the host waits for none
/// of them: their findings come up to a step later. `objects` (modules, wrappers) give parameters their names.
template <typename... T>
NanWatch nan_watch(const T&... objects) {
  TensorNames names;
  (detail::learn_names(names, "", objects), ...);
  return NanWatch(std::move(names));
}

/// One watch for each thread, which `%nan` turns on and off.
void nan_on(const TensorNames& names);
void nan_off();
/// Sets its names of parameters; does nothing if it is off.
void nan_names(const TensorNames& names);
/// Returns one sentence.
std::string nan_status();

}  // namespace lockstep::inspect
