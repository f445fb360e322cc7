// Takes a cell as tokens, after the preprocessor and before the parser. Its functions find brackets, items and
// declarators without knowing what names mean.
#pragma once
#include <string>
#include <vector>

#include "compiler/front_end/clang_headers.h"

namespace lockstep::compiler {

using Tokens = std::vector<clang::Token>;

/// Counts open braces and parentheses, to know whether a token is at namespace scope.
struct ScopeTracker {
  /// Whether a token is at namespace scope, outside parentheses. Called for each token in turn.
  bool at_namespace_scope() const { return parentheses == 0 && others == 0; }
  void advance(const Tokens& tokens, size_t i);

  int parentheses = 0;
  int others = 0;  // open braces that belong to no namespace
  std::vector<bool> namespaces;  // per open brace: does it belong to a namespace?
};

inline bool is_at(const Tokens& tokens, size_t i, clang::tok::TokenKind kind) {
  return i < tokens.size() && tokens[i].is(kind);
}
/// Returns the raw tokens of a text: no macro is expanded, no directive is followed, and names and keywords are raw
/// identifiers.
Tokens raw_tokens(llvm::StringRef text, const clang::LangOptions& language);
/// Whether it is `struct`, `class`, `union` or `enum`.
bool is_class_key(const clang::Token& token);
/// Returns the identifier at `i`; empty where there is none.
std::string identifier(const Tokens& tokens, size_t i);
/// Returns the spelling of tokens [begin, end), one blank between them.
std::string spelling(const Tokens& tokens, size_t begin, size_t end, clang::Preprocessor& preprocessor);

// The following return the position behind what they skip; tokens.size() if there is no such token.

/// Skips the brackets that open at `i`.
size_t after_bracket(const Tokens& tokens, size_t i);
/// Skips the attributes at `i`: [[...]], __attribute__((...)), alignas(...).
size_t after_attributes(const Tokens& tokens, size_t i);
/// Skips `<...>` at `i`, if the bracket looks like one of template arguments.
size_t after_angle(const Tokens& tokens, size_t i);
/// Skips the declaration or statement from `begin`: to behind its `;`, or behind the `}` of a definition.
size_t after_item(const Tokens& tokens, size_t begin);
/// Whether a class, a union or an enumeration is defined at `i`: `struct A final {`, `enum class E : int {`, not
/// `struct A a{1};`.
bool defines_type(const Tokens& tokens, size_t i);
/// Returns the name that the declaration from `begin` declares: TYPE name followed by one of = ; { ( , [ or the end.
/// None for a qualified name, for an expression, and for a declaration of another form.
size_t find_declarator(const Tokens& tokens, size_t begin);

/// Whether the brace at `i` opens a namespace, or an extern "C" block.
bool opens_namespace(const Tokens& tokens, size_t i);
/// Whether these tokens declare a name that keeps its value from one run to the next (`static`, `thread_local`), or
/// that refers to an entity outside of its block (`extern`).
bool keeps_state(const Tokens& tokens);

}  // namespace lockstep::compiler
