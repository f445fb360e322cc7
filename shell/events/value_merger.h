// Values of ranks as front ends show them that draw a cell's value once: equal ones as one, in the order in which they
// came.
#pragma once
#include <functional>
#include <vector>

#include "shell/events/event.h"

namespace lockstep::shell {

/// Adds `event` to `values`, to an equal one where there is such a one. A rank that has a value there already shows its
/// next one: then `show` is called first, and it empties `values`. Returns whether all ranks of `all` have a value now.
bool merge_value(std::vector<ValueEvent>& values, const ValueEvent& event, const RankSet& all,
                 const std::function<void()>& show);

}  // namespace lockstep::shell
