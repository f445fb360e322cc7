// Handles directives about the file that contains them: `#pragma once`, `#pragma GCC system_header`, `#embed`, `module
// m;`. The text of a header that is pasted into a cell contains such pragmas. A cell is not a file, and clang would
// crash when it looks the file up.
#pragma once
#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

/// Takes the effect of these pragmas away in cells; in files they keep it. `#pragma lockstep library`, which %lib
/// writes, makes the headers that a cell includes after it a library's: what they declare keeps its symbols.
void set_up_pragmas(clang::Preprocessor& preprocessor);

/// Throws std::runtime_error if a cell contains what only a file can contain: `#embed`, a module declaration.
void refuse_directives_of_files(const std::string& text, const clang::LangOptions& language);

}  // namespace lockstep::compiler
