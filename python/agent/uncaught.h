// Reports exceptions of C++ that nobody catches: the rank says which one ended it, before std::terminate's handler ends
// the process as it would have. They come from a program in C++, or from C++ threads in a Python job (Gloo's, which
// finds that a peer has sent more than the collective takes).
#pragma once
#include <functional>

namespace lockstep::agent {

/// Makes such an exception this rank's end (set_end). `is_program`: the program is C++, and its debug information says
/// which lines have thrown. `before` is called on the thread of the exception, with the process as it is. Called once
/// in a process.
void report_uncaught_exceptions(bool is_program, std::function<void()> before = {});

}  // namespace lockstep::agent
