// Exceptions of C++ that nobody catches: the rank says which one ended it, before std::terminate's handler ends the
// process as it would have. Of a program in C++, and of C++ threads in a Python job (Gloo's, which finds that a peer
// has sent more than the collective takes).
#pragma once
#include <functional>

namespace lockstep::agent {

/// From here on such an exception is this rank's end (set_end). `is_program`: the program is C++, and its debug
/// information says which lines have thrown. `before`: called on the thread of the exception, with the process as it
/// is. Once in a process.
void report_uncaught_exceptions(bool is_program, std::function<void()> before = {});

}  // namespace lockstep::agent
