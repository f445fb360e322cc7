// Finds the items of a cell, as its tokens show them: what is a declaration and what is a statement, where each ends,
// and which names a declaration defines. It guesses where only a compiler knows.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shell/scripts/cpp_lexer.h"

namespace lockstep::shell {

/// Describes a name. A function has its parameters as text, other names have none.
struct DefinedName {
  std::string name;
  std::optional<std::string> parameters;
};

/// Is what stands in the braces of a namespace, or of extern "C": tokens [begin, end).
struct CppBlock {
  std::string space;  // before the names in it: "a::b::", or ""
  size_t begin = 0, end = 0;
};

/// Is one item of a cell: tokens [begin, end).
struct CppItem {
  size_t begin = 0, end = 0;
  bool declares = false;
  bool is_include_like = false;  // a namespace of a library, which stands outside of ours
  std::vector<DefinedName> names;
  std::string adds_to;  // the first name of what it adds to, and does not define: Net of Net::f, f of using a::f
  std::optional<CppBlock> block;
};

class CppItems {
 public:
  /// Takes tokens [first, last), which have to live as long as this.
  CppItems(const std::vector<CppToken>& tokens, size_t first, size_t last) : tokens_(tokens), at_(first), last_(last) {}

  /// Returns the next item; none at the end.
  std::optional<CppItem> next();

 private:
  std::string_view text(size_t i) const { return i < last_ ? tokens_[i].text : std::string_view(); }
  bool is_word(size_t i) const { return i < last_ && tokens_[i].is_word(); }
  /// Returns the index behind the bracket that closes the one at `i`.
  size_t after_bracket(size_t i) const;
  /// Skips `<...>` at `i`; returns `i` if these are no template arguments.
  size_t after_angle(size_t i) const;
  /// Skips a name such as ::a::b<c>::d; returns `i` if there is none. `last_name` is the index of its last word.
  size_t after_name(size_t i, size_t* last_name = nullptr) const;
  static bool is_type_word(std::string_view word);
  static bool is_specifier(std::string_view word);
  /// Macros of LibTorch that declare something, and look like calls.
  static bool is_declaring_macro(std::string_view word);
  /// Skips the type at `i` with its `const`, `*` and `&`; returns `i` if there is none.
  size_t after_type(size_t i) const;
  bool declares(size_t i) const;
  size_t end_of(size_t i, bool declares) const;
  void read_names(CppItem& item) const;
  std::optional<CppBlock> block_of(const CppItem& item) const;

  const std::vector<CppToken>& tokens_;
  size_t at_, last_;
};

}  // namespace lockstep::shell
