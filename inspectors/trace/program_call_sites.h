// Call sites of a plain program: those in its own code, which is neither LibTorch's nor the system's, with file and line.
#pragma once
#include "inspectors/trace/call_site.h"

namespace lockstep::inspect {

/// The innermost addresses in the program and in libraries of its own.
CallSite capture_program_call_site();
/// "/src/train.cpp:88"; empty without debug information.
std::string describe_program_call_site(const CallSite& site);

}  // namespace lockstep::inspect
