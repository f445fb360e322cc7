// Finds the names that the tokens of a cell declare, and to which they refer, as far as tokens can tell: enough for the
// earlier definitions that a cell replaces. A wrong guess leads to an error of clang, which the next attempt corrects.
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

/// Returns the names that the declaration at `begin` declares.
std::vector<Declared> declared_names(const Tokens& tokens, size_t begin, clang::Preprocessor& preprocessor);

/// Returns the functions that a cell defines outside of any namespace.
std::set<std::string> defined_functions(const Tokens& tokens, clang::Preprocessor& preprocessor);

/// Returns the identifiers by which the cell may refer to earlier definitions: all except those that it declares first.
std::set<std::string> referred_names(const Tokens& tokens, clang::Preprocessor& preprocessor);

}  // namespace lockstep::compiler
