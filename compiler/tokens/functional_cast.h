// `T(x)` at a prompt is meant as a conversion, but in C++ it declares a variable x, with parentheses around its name.
// Tokens alone can't decide between the two; these functions find what tokens do show.
#pragma once
#include <optional>

#include "compiler/tokens/cell_tokens.h"

namespace lockstep::compiler {

/// An item that begins with a type's name and an opening parenthesis: a conversion or a declaration.
struct FunctionalCast {
  size_t name = 0;    // the identifier in the parentheses, as a declarator would have it; tokens.size(): none
  bool qualified = false;  // `outer::x`
  size_t after = 0;  // after the closing parenthesis
  bool bare = false;  // the type is one name without template arguments: perhaps that of a template
  bool guide_or_constructor = false;  // `Box(T) -> Box<T>`, `Net::Net(...)`
};

/// Returns the item at `begin`, if it has that form. An item with a specifier that only declarations have (`const`,
/// `static`, ...) does not have it.
std::optional<FunctionalCast> functional_cast(const Tokens& tokens, size_t begin);

/// Whether it is a declaration with more than a name: with an initialiser, or a function's body.
bool declares_more(const Tokens& tokens, const FunctionalCast& cast);

}  // namespace lockstep::compiler
