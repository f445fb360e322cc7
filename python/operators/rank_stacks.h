// Answers what the main thread of a rank does ("stacks"), also while that thread runs Python.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace lockstep::python {

/// Returns the answer of agent::take_stacks. Where the main thread holds the interpreter's lock, the lock is taken from
/// it for a moment; where it does not let go of it, since it stays within one call of C or C++, its stack is read
/// there. "at_lock" is there where the thread waits for that lock: "free" (another thread got it meanwhile), or "held".
nlohmann::json stacks(const nlohmann::json& request);

}  // namespace lockstep::python
