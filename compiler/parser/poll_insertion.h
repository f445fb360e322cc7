// Inserts a test of lockstep_poll_requested into the bodies of loops in cells and in the user's headers, and before a
// backward `goto`, so that an interrupt ends a loop with an ordinary exception.
//
// There is no test in noexcept functions and destructors, where an exception would end the process, and in code that is
// evaluated at compile time. lockstep_poll() throws on the rank's own thread only.
#pragma once
#include "compiler/parser/cell_parser.h"

namespace lockstep::compiler {

/// Changes the functions that `cell` has defined. Does nothing if the header does not declare lockstep_poll().
void insert_polls(const ReadCell& cell, clang::Sema& sema, const OwnNames& own);

}  // namespace lockstep::compiler
