// Finds where in the user's code a collective was called that did not come through dist:: (the all_reduce of a Reducer,
// a user's own use of c10d). A function that knows which code is the user's finds it on the stack.
#pragma once
#include <cstdint>

namespace lockstep::dist {

struct Caller {
  /// Return address in the user's code, or number of a call site in the log; 0: unknown.
  uint64_t site = 0;
  bool named = false;  // `site` is a number (CollectiveLog::name_site)
  bool is_c10d = true;  // c10d itself calls, and not a function that users call
};

/// Sets what says where the calling thread is. It is called at each such collective, so it has to be quick. Set once,
/// at start; without it the callers are unknown.
void set_caller_finder(Caller (*find)());
/// The watched backend calls it.
Caller find_caller();

}  // namespace lockstep::dist
