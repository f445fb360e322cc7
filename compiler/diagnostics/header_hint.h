// Which header of the standard library declares a name that a cell lacks.
#pragma once
#include <optional>
#include <string>

#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

/// If the error `info` is that a name of the standard library is not declared: a sentence with the header ("did you
/// mean to `#include <future>`?"), if that header is installed.
std::optional<std::string> header_hint(const clang::Diagnostic& info, const clang::Preprocessor& preprocessor);

}  // namespace lockstep::compiler
