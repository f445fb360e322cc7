// Puts a look at lockstep_poll_requested into the bodies of loops that stand in cells and in the user's own headers,
// and in front of a `goto` that goes back, so that a loop ends when it is interrupted, by an exception like any other.
//
// By their place in clang's tree: not in noexcept functions and destructors, where an exception would end the process,
// nor in what is evaluated at compile time, nor in bodies handed to at::parallel_for, which run on other threads.
#pragma once
#include "compiler/parser/cell_parser.h"

namespace lockstep::compiler {

/// Changes the functions that `cell` has defined. Nothing happens where the header does not declare lockstep_poll().
void insert_polls(const ReadCell& cell, clang::Sema& sema, const OwnNames& own);

}  // namespace lockstep::compiler
