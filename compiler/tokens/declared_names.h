// What the tokens of a cell declare, and which names they refer to, as far as that can be seen without knowing what
// names mean: enough to tell which earlier definitions a cell replaces. What is missed or guessed wrong shows as an
// error, and is corrected then.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "compiler/tokens/cell_tokens.h"

namespace lockstep::compiler {

struct Declared {
  enum Form { variable, function_definition, function_declaration, type_definition, alias };
  std::string path;  // "" or "outer::inner"
  std::string name;
  Form form;
  std::string parameters;  // spelled, of functions
  bool replaces = true;  // `extern int x;` does not

  bool is_type() const { return form == type_definition || form == alias; }
};

/// Of the declaration that begins at `begin`.
std::vector<Declared> declared_names(const Tokens& tokens, size_t begin, clang::Preprocessor& preprocessor);

/// Functions that a cell defines outside of any namespace.
std::set<std::string> defined_functions(const Tokens& tokens, clang::Preprocessor& preprocessor);

/// Identifiers of the cell, less those that it declares before it says them otherwise: what it may refer to.
std::set<std::string> referred_names(const Tokens& tokens, clang::Preprocessor& preprocessor);

}  // namespace lockstep::compiler
