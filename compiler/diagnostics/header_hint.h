// Which header of the standard library brings a name that a cell lacks.
#pragma once
#include <optional>
#include <string>

#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

/// For the error `info`, where it says that a name of the standard library is not declared: a sentence that names the
/// header ("did you mean to `#include <future>`?"). Only headers that are installed are named.
std::optional<std::string> header_hint(const clang::Diagnostic& info, const clang::Preprocessor& preprocessor);

}  // namespace lockstep::compiler
