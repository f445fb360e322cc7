// Calls that nobody made through dist:: (the all_reduce of a Reducer, a user's own use of c10d) bring no place in the user's code.
// Whoever knows the user's code finds it on the stack.
#pragma once
#include <cstdint>

namespace lockstep::dist {

/// `find` gives the return address in the user's code that the calling thread is in, 0 where it is in none. Asked at each such
/// call, so it has to be quick. Once, at start; without it the place of such calls is not known.
void set_caller_finder(uint64_t (*find)());
/// By the backend.
uint64_t find_caller();

}  // namespace lockstep::dist
