// Takes the arguments of an inspector that runs a step: what the step changes, and options, in any order, as in
// `inspect::lockstep(step, net, optimizer, x, LockstepOptions())`.
#pragma once
#include <type_traits>

#include "inspectors/subject/saved_state.h"
#include "inspectors/trace/tensor_names.h"

namespace lockstep::inspect::detail {

/// Returns the last of `state` that is an Options; defaults without one.
template <typename Options, typename... State>
Options options_among(const State&... state) {
  Options options;
  const auto take = [&]<typename T>(const T& each) {
    if constexpr (std::is_same_v<T, Options>) options = each;
  };
  (take(state), ...);
  return options;
}

template <typename Options, typename... State>
void name_all(TensorNames& names, const State&... state) {
  const auto take = [&]<typename T>(const T& each) {
    if constexpr (!std::is_same_v<T, Options>) learn_names(names, "", each);
  };
  (take(state), ...);
}

template <typename Options, typename... State>
void save_all(SavedState& saved, State&... state) {
  const auto take = [&]<typename T>(T& each) {
    if constexpr (!std::is_same_v<std::remove_cv_t<T>, Options>) saved.save_any(each);
  };
  (take(state), ...);
}

}  // namespace lockstep::inspect::detail
