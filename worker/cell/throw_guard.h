// Decides whether an exception that is thrown now could leave the cell, or would end the process on its way: in a
// function that is noexcept, a destructor, a thread's outermost function. An interrupt that would do that waits.
#pragma once
#include "worker/process/endable_call.h"

namespace lockstep::worker {

/// Walks the caller's stack out to the worker's own code. Returns true where some function on the way lets no exception
/// out. It errs on the side of true: a handler that would catch the exception before it gets there is not looked for.
bool throwing_would_terminate();

/// Walks the stack in the same way, from a function of the worker that stands in front of one of the C library. Returns
/// true where a cell has called that, by way of the C and C++ libraries at most, and throwing would not terminate. Other
/// libraries need not expect that the C library throws.
bool may_leave_call(Leaving leaving);

}  // namespace lockstep::worker
