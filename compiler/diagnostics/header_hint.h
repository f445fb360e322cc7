// Finds the header of the standard library that declares a name that a cell lacks.
#pragma once
#include <optional>
#include <string>

#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

/// Returns a sentence with the header ("did you mean to `#include <future>`?") if the error `info` is that a name of
/// the standard library is not declared, and that header is installed.
std::optional<std::string> header_hint(const clang::Diagnostic& info, const clang::Preprocessor& preprocessor);

}  // namespace lockstep::compiler
