// A cell as tokens, after the preprocessor and before the parser: functions that find brackets, items and declarators
// without knowing what names mean.
#pragma once
#include <string>
#include <vector>

#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

using Tokens = std::vector<clang::Token>;

/// Counts open braces and parentheses: is a token at namespace scope?
struct ScopeTracker {
  /// Call for each token in turn; true when the token itself is at namespace scope, outside parentheses.
  bool at_namespace_scope() const { return parentheses == 0 && others == 0; }
  void advance(const Tokens& tokens, size_t i);

  int parentheses = 0;
  int others = 0;  // open braces that belong to no namespace
  std::vector<bool> namespaces;  // per open brace: does it belong to a namespace?
};

inline bool is_at(const Tokens& tokens, size_t i, clang::tok::TokenKind kind) {
  return i < tokens.size() && tokens[i].is(kind);
}
/// The raw tokens of a text: no macro is expanded, no directive is followed, and names and keywords are raw
/// identifiers.
Tokens raw_tokens(llvm::StringRef text, const clang::LangOptions& language);
/// `struct`, `class`, `union`, `enum`.
bool is_class_key(const clang::Token& token);
/// The identifier at `i`; empty where there is none.
std::string identifier(const Tokens& tokens, size_t i);
/// The spelling of tokens [begin, end), one blank between them.
std::string spelling(const Tokens& tokens, size_t begin, size_t end, clang::Preprocessor& preprocessor);

// The following return positions; tokens.size() if there is no such token.

/// After the bracket that closes the one at `i`.
size_t after_bracket(const Tokens& tokens, size_t i);
/// After the attributes at `i`: [[...]], __attribute__((...)), alignas(...).
size_t after_attributes(const Tokens& tokens, size_t i);
/// After `<...>` at `i`, or `i` itself where the bracket does not look like one of template arguments.
size_t after_angle(const Tokens& tokens, size_t i);
/// End of the declaration or statement that begins at `begin`: after its `;`, or after the `}` of a definition.
size_t after_item(const Tokens& tokens, size_t begin);
/// Does the definition of a class, a union or an enumeration begin at `i`? `struct A final {`, `enum class E : int {`,
/// not `struct A a{1};`.
bool defines_type(const Tokens& tokens, size_t i);
/// The name that the declaration from `begin` declares: TYPE name followed by one of = ; { ( , [ or the end. None for a
/// qualified name, for an expression, and for a declaration of another form.
size_t find_declarator(const Tokens& tokens, size_t begin);

/// Does the brace at `i` open a namespace, or an extern "C" block?
bool opens_namespace(const Tokens& tokens, size_t i);
/// Do these tokens declare a name that keeps its value from one run to the next (`static`, `thread_local`), or that
/// refers to an entity outside of its block (`extern`)?
bool keeps_state(const Tokens& tokens);

}  // namespace lockstep::compiler
