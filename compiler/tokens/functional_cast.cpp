#include "compiler/tokens/functional_cast.h"

namespace lockstep::compiler {

using namespace clang;

namespace {

bool names_builtin_type(const Token& token) {
  return token.isOneOf(tok::kw_auto, tok::kw_bool, tok::kw_char, tok::kw_char8_t, tok::kw_char16_t, tok::kw_char32_t,
                       tok::kw_wchar_t, tok::kw_short, tok::kw_int, tok::kw_long, tok::kw_signed, tok::kw_unsigned,
                       tok::kw_float, tok::kw_double, tok::kw___int128);
}

/// A type's name, perhaps qualified.
struct TypeName {
  size_t after;     // tokens.size(): there is none
  bool bare;         // no template arguments
  bool constructor;  // A::A
};

TypeName read_type_name(const Tokens& tokens, size_t i) {
  const TypeName none{tokens.size(), false, false};
  if (is_at(tokens, i, tok::kw_typename)) ++i;
  if (is_at(tokens, i, tok::coloncolon)) ++i;
  TypeName type{i, true, false};
  for (std::string before;;) {
    if (is_at(tokens, i, tok::kw_template)) ++i;
    const std::string name = identifier(tokens, i);
    if (name.empty()) return none;
    type.constructor = name == before;
    before = name;
    ++i;
    if (is_at(tokens, i, tok::less)) {
      const size_t after = after_angle(tokens, i);
      if (after == i) return none;
      i = after;
      type.bare = false;
    }
    if (!is_at(tokens, i, tok::coloncolon)) break;
    ++i;
  }
  type.after = i;
  return type;
}

/// Finds the name that a declarator in parentheses declares: after `*`, `&`, further parentheses and qualifiers.
size_t find_declared(const Tokens& tokens, size_t i) {
  while (i < tokens.size() && tokens[i].isOneOf(tok::star, tok::amp, tok::ampamp, tok::l_paren, tok::kw_const,
                                                tok::kw_volatile, tok::coloncolon))
    ++i;
  while (is_at(tokens, i, tok::identifier) && is_at(tokens, i + 1, tok::coloncolon)) i += 2;
  return is_at(tokens, i, tok::identifier) ? i : tokens.size();
}

/// Whether `-> Name<...>` and the end follow: a deduction guide.
bool is_guide(const Tokens& tokens, size_t i) {
  if (!is_at(tokens, i, tok::arrow)) return false;
  const TypeName type = read_type_name(tokens, i + 1);
  return type.after < tokens.size() && !type.bare && tokens[type.after].isOneOf(tok::semi, tok::eof);
}

}  // namespace

std::optional<FunctionalCast> functional_cast(const Tokens& tokens, size_t begin) {
  size_t i = begin;
  FunctionalCast cast;
  if (is_at(tokens, i, tok::kw_decltype) && is_at(tokens, i + 1, tok::l_paren)) {
    i = after_bracket(tokens, i + 1);
  } else if (i < tokens.size() && names_builtin_type(tokens[i])) {
    while (i < tokens.size() && names_builtin_type(tokens[i])) ++i;
  } else {
    const TypeName type = read_type_name(tokens, i);
    if (type.after >= tokens.size()) return std::nullopt;
    i = type.after;
    cast.bare = type.bare;
    cast.guide_or_constructor = type.constructor;
  }
  if (!is_at(tokens, i, tok::l_paren)) return std::nullopt;
  cast.name = find_declared(tokens, i + 1);
  cast.qualified = cast.name < tokens.size() && is_at(tokens, cast.name - 1, tok::coloncolon);
  cast.after = after_bracket(tokens, i);
  cast.guide_or_constructor = cast.guide_or_constructor || (cast.bare && is_guide(tokens, cast.after));
  return cast;
}

bool declares_more(const Tokens& tokens, const FunctionalCast& cast) {
  if (cast.after < tokens.size() && tokens[cast.after].isOneOf(tok::equal, tok::l_brace)) return true;
  // After the parameters of a function comes a body.
  if (!is_at(tokens, cast.after, tok::l_paren)) return false;
  for (size_t i = after_bracket(tokens, cast.after); i < tokens.size() && !tokens[i].isOneOf(tok::semi, tok::eof);) {
    if (tokens[i].is(tok::l_brace)) return true;
    i = tokens[i].isOneOf(tok::l_paren, tok::l_square) ? after_bracket(tokens, i) : i + 1;
  }
  return false;
}

}  // namespace lockstep::compiler
