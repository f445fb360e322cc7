// Finds call sites of a plain program: those in its own code, not LibTorch's or the system's, with file and line.
#pragma once
#include "inspectors/trace/call_site.h"

namespace lockstep::inspect {

/// Returns the innermost addresses in the program and in libraries of its own.
CallSite capture_program_call_site();
/// Returns "/src/train.cpp:88"; empty without debug information.
std::string describe_program_call_site(const CallSite& site);

}  // namespace lockstep::inspect
