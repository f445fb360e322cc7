// Changes what does not work at namespace scope of a cell, since each cell is an object of its own:
//  - `static` and unnamed namespaces are removed, since each cell would get its own variable;
//  - a lambda at namespace scope can't have a capture default in C++: the default is removed, since there is nothing to
//    capture (names of cells are global);
//  - a variable that is initialised with a lambda becomes `inline`, so that the lambda's type has the same name in
//    other cells;
//  - a type without a name gets the name of its variable, since it would be another type in each cell;
//  - `main` is a function like others, but returns 0 without a `return`: it gets a `return {};` at its end;
//  - a lambda can't capture a cell's variable by name in C++, since the variable is global: [x] becomes [x = x], [&x]
//    becomes [&x = x].
#pragma once
#include <functional>

#include "compiler/tokens/cell_tokens.h"

namespace lockstep::compiler {

struct TokenEdits {
  bool capture_defaults = true;  // remove those in initialisers
  std::function<bool(const clang::Token&)> refused;  // is this token (`&`, `=`, a name) a capture that clang rejected?
};
/// Makes these changes in `tokens`.
void edit_tokens(Tokens& tokens, clang::Preprocessor& preprocessor, const TokenEdits& edits);

}  // namespace lockstep::compiler
