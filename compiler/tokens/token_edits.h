// What a cell may say at namespace scope that would not survive its being one object among many:
//  - `static` and unnamed namespaces would make a variable that every cell sees afresh: they are taken out;
//  - a lambda with a capture default is no C++ at namespace scope: its default is taken out, since there is nothing to
//    capture (names of cells are global);
//  - a variable initialised with a lambda becomes `inline`, so that the lambda's type has a name that other cells
//    share;
//  - a type without a name would be another one in each cell that uses its variable: it gets the variable's name.
//  - `main` is a function like others, but returns 0 by itself as everywhere: it gets a `return {};` at its end;
//  - a capture of a cell's variable, [x] or [&x], is none of C++, since the variable is global: it becomes [x = x],
//    [&x = x].
#pragma once
#include <functional>

#include "compiler/tokens/cell_tokens.h"

namespace lockstep::compiler {

struct TokenEdits {
  bool capture_defaults = true;  // those that stand in initialisers, as far as tokens tell
  std::function<bool(const clang::Token&)>
      refused;  // is this token, `&` or `=` or a name, a capture that clang did not take?
};
/// The changes named above, in place.
void edit_tokens(Tokens& tokens, clang::Preprocessor& preprocessor, const TokenEdits& edits);

}  // namespace lockstep::compiler
