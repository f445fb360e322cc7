// What says something of the file it stands in: `#pragma once`, `#pragma GCC system_header`, `#embed`, `module m;`.
// Headers that are pasted into a cell bring the pragmas along. A cell is no file, and clang, which looks the file up,
// would crash.
#pragma once
#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

/// From now on these pragmas do nothing in cells, and what they do otherwise in files.
void ignore_file_pragmas_in_cells(clang::Preprocessor& preprocessor);

/// Throws std::runtime_error where a cell has what only a file can have: `#embed`, a module declaration.
void refuse_directives_of_files(const std::string& text, const clang::LangOptions& language);

}  // namespace lockstep::compiler
