// Pragmas that say something of the file they stand in: `#pragma once`, `#pragma GCC system_header`. Headers that are
// pasted into a cell bring them along. A cell is no file, and clang, which looks the file up, would crash.
#pragma once
#include "compiler/clang_headers.h"

namespace lockstep::compiler {

/// From now on these pragmas do nothing in cells, and what they do otherwise in files.
void ignore_file_pragmas_in_cells(clang::Preprocessor& preprocessor);

}  // namespace lockstep::compiler
