// A cell as tokens, after the preprocessor and before the parser. Here is what a cell may say at namespace scope that
// would not survive its being one object among many:
//  - `static` and unnamed namespaces would make a variable that every cell sees afresh: they are taken out;
//  - a lambda with a capture default is no C++ at namespace scope: its default is taken out, since there is nothing to
//    capture (names of cells are global);
//  - a variable initialised with a lambda becomes `inline`, so that the lambda's type has a name that other cells share;
//  - a type without a name would be another one in each cell that uses its variable: it gets the variable's name.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "compiler/clang_headers.h"

namespace lockstep::compiler {

/// How braces nest at namespace scope: tells whether a token stands where a declaration of a namespace may stand.
struct ScopeTracker {
  /// Call for each token in turn; true when the token itself is at namespace scope, outside parentheses.
  bool at_namespace_scope() const { return parentheses == 0 && others == 0; }
  void advance(const std::vector<clang::Token>& tokens, size_t i);

  int parentheses = 0;
  int others = 0;  // open braces that belong to no namespace
  std::vector<bool> namespaces;  // per open brace: does it belong to a namespace?
};

/// Does the brace at `i` open a namespace, or an extern "C" block?
bool opens_namespace(const std::vector<clang::Token>& tokens, size_t i);

/// What the tokens from `begin` declare, if that can be seen without knowing what names mean: enough to tell which
/// earlier definitions a cell replaces. What is missed or guessed wrong shows as an error, and is mended then.
struct Declared {
  enum Form { variable, function_definition, function_declaration, type_definition, alias };
  std::string path;  // "" or "outer::inner"
  std::string name;
  Form form;
  std::string parameters;  // spelled, of functions
  bool replaces = true;  // `extern int x;` does not
};
std::vector<Declared> declared_names(const std::vector<clang::Token>& tokens, size_t begin,
                                     clang::Preprocessor& preprocessor);

/// Identifiers of the cell, less those that it declares before it says them otherwise: what it may refer to.
std::set<std::string> referred_names(const std::vector<clang::Token>& tokens, clang::Preprocessor& preprocessor);

struct TokenEdits {
  bool capture_defaults = true;
};
/// The changes named above, in place.
void edit_tokens(std::vector<clang::Token>& tokens, clang::Preprocessor& preprocessor, const TokenEdits& edits);

/// Position behind the bracket that closes the one at `i`; tokens.size() when it is not closed.
size_t behind_bracket(const std::vector<clang::Token>& tokens, size_t i);

/// Position behind the attributes at `i`: [[...]], __attribute__((...)), alignas(...).
size_t behind_attributes(const std::vector<clang::Token>& tokens, size_t i);

/// The spelling of tokens [begin, end), one blank between them.
std::string spelling(const std::vector<clang::Token>& tokens, size_t begin, size_t end,
                     clang::Preprocessor& preprocessor);

}  // namespace lockstep::compiler
