// Describes the program for `lockstep-compiler --version` and `lockstep doctor`: what it was built with, and whether it
// could compile a cell now.
#pragma once
#include <string>

#include "compiler/process/options.h"

namespace lockstep::compiler {

/// Returns a JSON object: program, lockstep, protocol, compiler, libtorch (its version); `problem`, where the installation
/// has one; otherwise `header` (the folder of the precompiled header) and `header_state`: ready, missing (it will be
/// built), damaged.
std::string describe_program(const Options& options);

}  // namespace lockstep::compiler
