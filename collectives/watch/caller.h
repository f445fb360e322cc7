// Where in the user's code a collective was called that did not come through dist:: (the all_reduce of a Reducer, a
// user's own use of c10d): found on the stack, by a function that knows which code is the user's.
#pragma once
#include <cstdint>

namespace lockstep::dist {

/// `find` returns the return address in the user's code that the calling thread is in, 0 where it is in none. It is
/// called at each such collective, so it has to be quick. Set once, at start; without it the call site of such calls is
/// unknown. `named`: what it returns is the number of a call site in the log (CollectiveLog::name_site), 0 for none.
void set_caller_finder(uint64_t (*find)(), bool named = false);
bool callers_are_named();
/// Called by the watched backend.
uint64_t find_caller();

}  // namespace lockstep::dist
