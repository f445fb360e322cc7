// `T(x)`: a conversion to whoever types it at a prompt, and to C++ the declaration of a variable x, with parentheses
// around its name. Which one is meant can't be seen from the tokens alone; what can be seen is found here.
#pragma once
#include <optional>

#include "compiler/tokens/cell_tokens.h"

namespace lockstep::compiler {

/// An item that begins with a type's name and an opening parenthesis, and may be either.
struct FunctionalCast {
  size_t name = 0;    // the identifier in the parentheses, as a declarator would have it; tokens.size(): none
  bool qualified = false;  // `outer::x`
  size_t after = 0;  // after the closing parenthesis
  bool bare = false;  // the type is one name without template arguments: perhaps that of a template
  bool guide_or_constructor = false;  // `Box(T) -> Box<T>`, `Net::Net(...)`
};

/// What begins at `begin`, if it has that form. Specifiers that only a declaration has (`const`, `static`, ...) exclude
/// it.
std::optional<FunctionalCast> functional_cast(const Tokens& tokens, size_t begin);

/// Does a declaration of this form say more than the name: an initialiser, a function's body?
bool declares_more(const Tokens& tokens, const FunctionalCast& cast);

}  // namespace lockstep::compiler
