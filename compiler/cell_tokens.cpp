#include "compiler/cell_tokens.h"

#include <map>
#include <optional>

namespace lockstep::compiler {

using namespace clang;
using Tokens = std::vector<Token>;

namespace {

bool is_at(const Tokens& tokens, size_t i, tok::TokenKind kind) { return i < tokens.size() && tokens[i].is(kind); }

std::string identifier(const Tokens& tokens, size_t i) {
  if (!is_at(tokens, i, tok::identifier)) return "";
  return tokens[i].getIdentifierInfo()->getName().str();
}

/// Behind `<...>` at `i`, or `i` itself where the bracket does not look like one of template arguments.
size_t behind_angle(const Tokens& tokens, size_t i) {
  int depth = 0;
  for (size_t k = i; k < tokens.size(); ++k) {
    switch (tokens[k].getKind()) {
      case tok::less:
        ++depth;
        break;
      case tok::greater:
        --depth;
        break;
      case tok::greatergreater:
        depth -= 2;
        break;
      case tok::l_paren:
      case tok::l_square:
      case tok::l_brace:
        k = behind_bracket(tokens, k) - 1;
        break;
      case tok::semi:
      case tok::r_paren:
      case tok::r_brace:
        return i;
      default:
        break;
    }
    if (depth <= 0) return k + 1;
  }
  return i;
}

bool is_class_key(const Token& token) {
  return token.isOneOf(tok::kw_struct, tok::kw_class, tok::kw_union, tok::kw_enum);
}

/// May `token` end what comes before the name in `TYPE name`?
bool may_end_type(const Token& token) {
  switch (token.getKind()) {
    case tok::identifier:
    case tok::greater:
    case tok::greatergreater:
    case tok::star:
    case tok::amp:
    case tok::ampamp:
    case tok::kw_auto:
    case tok::kw_bool:
    case tok::kw_char:
    case tok::kw_char8_t:
    case tok::kw_char16_t:
    case tok::kw_char32_t:
    case tok::kw_wchar_t:
    case tok::kw_short:
    case tok::kw_int:
    case tok::kw_long:
    case tok::kw_signed:
    case tok::kw_unsigned:
    case tok::kw_float:
    case tok::kw_double:
    case tok::kw_void:
    case tok::kw_const:
    case tok::kw_constexpr:
    case tok::kw_constinit:
    case tok::kw_volatile:
    case tok::kw_inline:
    case tok::kw_thread_local:
    case tok::kw___int128:
      return true;
    case tok::r_paren:
      return true;  // decltype(x) y
    default:
      return false;
  }
}

/// Where a declarator's name stands in the declaration from `begin`: TYPE name followed by one of = ; { ( , [ or the
/// end. tokens.size() when there is none (a qualified name, an expression, what is not understood).
size_t find_declarator(const Tokens& tokens, size_t begin) {
  for (size_t i = begin; i < tokens.size();) {
    const Token& token = tokens[i];
    if (token.is(tok::identifier)) {
      if (is_at(tokens, i + 1, tok::less)) {
        const size_t behind = behind_angle(tokens, i + 1);
        if (behind == i + 1) return tokens.size();
        i = behind;
        continue;
      }
      if (is_at(tokens, i + 1, tok::coloncolon)) {
        i += 2;
        continue;
      }
      const bool ends =
          i + 1 >= tokens.size() ||
          tokens[i + 1].isOneOf(tok::equal, tok::semi, tok::l_brace, tok::l_paren, tok::comma, tok::l_square, tok::eof);
      if (ends) return i > begin && may_end_type(tokens[i - 1]) ? i : tokens.size();
      ++i;
    } else if (token.is(tok::coloncolon) || may_end_type(token) ||
               token.isOneOf(tok::kw_extern, tok::kw_static, tok::kw_typename, tok::kw_template, tok::kw_struct,
                             tok::kw_class, tok::kw_union, tok::kw_enum, tok::kw_consteval, tok::string_literal,
                             tok::kw_explicit)) {
      ++i;
    } else if (token.isOneOf(tok::kw_decltype, tok::kw_alignas, tok::kw___attribute) &&
               is_at(tokens, i + 1, tok::l_paren)) {
      i = behind_bracket(tokens, i + 1);
    } else if (token.is(tok::l_square) && is_at(tokens, i + 1, tok::l_square)) {
      i = behind_bracket(tokens, i);
    } else {
      return tokens.size();
    }
  }
  return tokens.size();
}

/// End of the declaration or statement that begins at `begin`: behind its `;`, or behind the `}` of a definition.
size_t behind_item(const Tokens& tokens, size_t begin) {
  for (size_t i = begin; i < tokens.size();) {
    if (tokens[i].is(tok::semi)) return i + 1;
    if (tokens[i].isOneOf(tok::l_paren, tok::l_square, tok::l_brace)) {
      const bool brace = tokens[i].is(tok::l_brace);
      const bool initializer = brace && i > begin && tokens[i - 1].isOneOf(tok::equal, tok::comma, tok::l_paren);
      i = behind_bracket(tokens, i);
      const bool goes_on = i < tokens.size() && tokens[i].isOneOf(tok::semi, tok::comma, tok::period, tok::l_paren,
                                                                  tok::equal, tok::identifier, tok::star, tok::amp);
      if (brace && !initializer && !goes_on) return i;
    } else {
      ++i;
    }
  }
  return tokens.size();
}

/// Is the `[` at `i` the start of a lambda with a capture default?
bool has_capture_default(const Tokens& tokens, size_t i) {
  return is_at(tokens, i, tok::l_square) && (is_at(tokens, i + 1, tok::amp) || is_at(tokens, i + 1, tok::equal)) &&
         (is_at(tokens, i + 2, tok::r_square) || is_at(tokens, i + 2, tok::comma));
}

/// Is the `[` at `i` the start of a lambda, judged by what stands before it?
bool starts_lambda(const Tokens& tokens, size_t i) {
  if (!is_at(tokens, i, tok::l_square) || i == 0 || is_at(tokens, i + 1, tok::l_square)) return false;
  return tokens[i - 1].isOneOf(tok::equal, tok::l_paren, tok::comma, tok::l_brace, tok::kw_return, tok::question,
                               tok::colon, tok::plus, tok::exclaim, tok::ampamp, tok::pipepipe);
}

/// Behind the body of the lambda whose `[` is at `i`.
size_t behind_lambda(const Tokens& tokens, size_t i) {
  size_t k = behind_bracket(tokens, i);
  while (k < tokens.size() && !tokens[k].isOneOf(tok::l_brace, tok::semi)) {
    if (tokens[k].isOneOf(tok::l_paren, tok::l_square))
      k = behind_bracket(tokens, k);
    else
      ++k;
  }
  return is_at(tokens, k, tok::l_brace) ? behind_bracket(tokens, k) : k;
}

/// Tokens that are marked here are left out.
using Marks = std::vector<bool>;

/// The item at `begin` declares a variable with an initializer: takes capture defaults out of lambdas in it (not of
/// those inside other lambdas). True when there is any lambda.
bool edit_initializer(const Tokens& tokens, size_t name, size_t end, bool defaults, Marks& dropped) {
  bool lambda = false;
  for (size_t i = name + 1; i < end;) {
    if (!starts_lambda(tokens, i)) {
      ++i;
      continue;
    }
    lambda = true;
    if (defaults && has_capture_default(tokens, i)) {
      dropped[i + 1] = true;
      if (is_at(tokens, i + 2, tok::comma)) dropped[i + 2] = true;
    }
    i = behind_lambda(tokens, i);
  }
  return lambda;
}

/// `struct {...} pair;` from `begin`: where its brace is, and where the name of its first variable.
std::optional<std::pair<size_t, size_t>> find_unnamed_type(const Tokens& tokens, size_t begin) {
  size_t i = begin;
  while (i < tokens.size() && tokens[i].isOneOf(tok::kw_const, tok::kw_constexpr, tok::kw_constinit, tok::kw_inline,
                                                tok::kw_static, tok::kw_thread_local, tok::kw_volatile))
    ++i;
  if (i >= tokens.size() || !is_class_key(tokens[i])) return std::nullopt;
  const size_t brace = behind_attributes(tokens, i + 1);
  if (!is_at(tokens, brace, tok::l_brace)) return std::nullopt;
  size_t name = behind_bracket(tokens, brace);
  while (name < tokens.size() && tokens[name].isOneOf(tok::star, tok::amp, tok::kw_const, tok::kw_volatile)) ++name;
  if (!is_at(tokens, name, tok::identifier)) return std::nullopt;
  return std::pair(brace, name);
}

size_t behind_template_head(const Tokens& tokens, size_t i, bool& specialization) {
  while (is_at(tokens, i, tok::kw_template) && is_at(tokens, i + 1, tok::less)) {
    if (is_at(tokens, i + 2, tok::greater)) specialization = true;
    const size_t behind = behind_angle(tokens, i + 1);
    if (behind == i + 1) break;
    i = behind;
  }
  return i;
}

void collect(const Tokens& tokens, size_t begin, const std::string& path, Preprocessor& preprocessor,
             std::vector<Declared>& found);

void collect_namespace(const Tokens& tokens, size_t begin, const std::string& path, Preprocessor& preprocessor,
                       std::vector<Declared>& found) {
  size_t i = begin + 1;
  std::string inner = path;
  for (; i < tokens.size() && !tokens[i].is(tok::l_brace); ++i) {
    if (tokens[i].is(tok::equal)) {
      found.push_back({path, identifier(tokens, begin + 1), Declared::alias, "", true});
      return;
    }
    if (tokens[i].is(tok::identifier)) inner += (inner.empty() ? "" : "::") + identifier(tokens, i);
    if (tokens[i].is(tok::semi)) return;
  }
  if (i >= tokens.size()) return;
  const size_t end = behind_bracket(tokens, i) - 1;
  for (size_t k = i + 1; k < end;) {
    collect(tokens, k, inner, preprocessor, found);
    const size_t next = behind_item(tokens, k);
    if (next <= k) break;
    k = next;
  }
}

void collect(const Tokens& tokens, size_t begin, const std::string& path, Preprocessor& preprocessor,
             std::vector<Declared>& found) {
  bool specialization = false;
  size_t i = behind_attributes(tokens, begin);
  if (is_at(tokens, i, tok::kw_inline) && is_at(tokens, i + 1, tok::kw_namespace)) ++i;
  if (is_at(tokens, i, tok::kw_namespace)) return collect_namespace(tokens, i, path, preprocessor, found);
  if (is_at(tokens, i, tok::kw_extern) && is_at(tokens, i + 1, tok::string_literal)) {
    if (is_at(tokens, i + 2, tok::l_brace)) {
      const size_t end = behind_bracket(tokens, i + 2) - 1;
      for (size_t k = i + 3; k < end;) {
        collect(tokens, k, path, preprocessor, found);
        const size_t next = behind_item(tokens, k);
        if (next <= k) break;
        k = next;
      }
      return;
    }
    i += 2;
  }
  const bool is_template = is_at(tokens, i, tok::kw_template);
  i = behind_template_head(tokens, i, specialization);
  if (specialization) return;
  if (is_at(tokens, i, tok::kw_concept)) {
    found.push_back({path, identifier(tokens, i + 1), Declared::type_definition, "", true});
    return;
  }
  if (is_at(tokens, i, tok::kw_using)) {
    if (is_at(tokens, i + 1, tok::identifier) && is_at(tokens, i + 2, tok::equal))
      found.push_back({path, identifier(tokens, i + 1), Declared::alias, "", true});
    return;
  }
  if (is_at(tokens, i, tok::kw_typedef)) {
    const size_t end = behind_item(tokens, i);
    if (end >= 2 && is_at(tokens, end - 2, tok::identifier))
      found.push_back({path, identifier(tokens, end - 2), Declared::alias, "", true});
    ++i;
  }
  if (i < tokens.size() && is_class_key(tokens[i])) {
    const bool enumeration = tokens[i].is(tok::kw_enum);
    size_t k = i + 1;
    if (enumeration && k < tokens.size() && tokens[k].isOneOf(tok::kw_class, tok::kw_struct)) ++k;
    k = behind_attributes(tokens, k);
    const std::string name = identifier(tokens, k);
    if (!name.empty() && k + 1 < tokens.size()) {
      const bool head_ends = tokens[k + 1].isOneOf(tok::l_brace, tok::colon) || identifier(tokens, k + 1) == "final";
      if (head_ends) {
        size_t brace = k + 1;
        while (brace < tokens.size() && !tokens[brace].isOneOf(tok::l_brace, tok::semi)) ++brace;
        if (is_at(tokens, brace, tok::l_brace)) {
          found.push_back({path, name, Declared::type_definition, "", true});
          if (enumeration && tokens[i + 1].is(tok::identifier)) {  // unscoped: its enumerators are names, too
            const size_t end = behind_bracket(tokens, brace) - 1;
            bool expect = true;
            for (size_t e = brace + 1; e < end; ++e) {
              if (expect && tokens[e].is(tok::identifier))
                found.push_back({path, identifier(tokens, e), Declared::variable, "", true});
              expect = tokens[e].is(tok::comma);
              if (tokens[e].isOneOf(tok::l_paren, tok::l_square, tok::l_brace)) e = behind_bracket(tokens, e) - 1;
            }
          }
          const size_t behind = behind_bracket(tokens, brace);
          if (is_at(tokens, behind, tok::identifier))
            found.push_back({path, identifier(tokens, behind), Declared::variable, "", true});
          return;
        }
      }
    }
  }
  if (is_at(tokens, i, tok::kw_auto)) {  // auto [a, b] = ...
    size_t k = i + 1;
    while (k < tokens.size() && tokens[k].isOneOf(tok::amp, tok::ampamp, tok::kw_const)) ++k;
    if (is_at(tokens, k, tok::l_square)) {
      for (++k; k < tokens.size() && !tokens[k].is(tok::r_square); ++k)
        if (tokens[k].is(tok::identifier)) found.push_back({path, identifier(tokens, k), Declared::variable, "", true});
      return;
    }
  }
  const bool is_extern = is_at(tokens, i, tok::kw_extern);
  size_t name = find_declarator(tokens, i);
  if (name >= tokens.size()) return;
  if (is_at(tokens, name + 1, tok::l_paren)) {
    const size_t behind = behind_bracket(tokens, name + 1);
    size_t k = behind;
    while (k < tokens.size() && !tokens[k].isOneOf(tok::l_brace, tok::semi, tok::equal, tok::comma, tok::eof)) {
      if (tokens[k].is(tok::l_paren))
        k = behind_bracket(tokens, k);
      else
        ++k;
    }
    const bool definition = is_at(tokens, k, tok::l_brace);
    // `T x(1);` and `T f(int);` look alike; both leave functions of the same name alone.
    found.push_back({path, identifier(tokens, name),
                     definition ? Declared::function_definition : Declared::function_declaration,
                     spelling(tokens, name + 1, behind, preprocessor), definition});
    return;
  }
  found.push_back(
      {path, identifier(tokens, name), Declared::variable, "", !is_extern || is_at(tokens, name + 1, tok::equal)});
  if (is_template) return;
  // Further declarators: behind each comma outside brackets.
  for (size_t k = name + 1; k < tokens.size() && !tokens[k].isOneOf(tok::semi, tok::eof);) {
    if (tokens[k].isOneOf(tok::l_paren, tok::l_square, tok::l_brace)) {
      k = behind_bracket(tokens, k);
      continue;
    }
    if (tokens[k].is(tok::identifier) && is_at(tokens, k + 1, tok::less)) {
      const size_t behind = behind_angle(tokens, k + 1);
      if (behind > k + 1) {
        k = behind;
        continue;
      }
    }
    if (tokens[k].is(tok::comma)) {
      size_t next = k + 1;
      while (next < tokens.size() && tokens[next].isOneOf(tok::star, tok::amp)) ++next;
      if (is_at(tokens, next, tok::identifier) && next + 1 < tokens.size() &&
          tokens[next + 1].isOneOf(tok::equal, tok::comma, tok::semi, tok::l_brace, tok::l_square, tok::l_paren))
        found.push_back({path, identifier(tokens, next), Declared::variable, "", !is_extern});
    }
    ++k;
  }
}

}  // namespace

size_t behind_bracket(const Tokens& tokens, size_t i) {
  int depth = 0;
  for (; i < tokens.size(); ++i) {
    if (tokens[i].isOneOf(tok::l_paren, tok::l_square, tok::l_brace)) ++depth;
    if (tokens[i].isOneOf(tok::r_paren, tok::r_square, tok::r_brace) && --depth <= 0) return i + 1;
  }
  return i;
}

size_t behind_attributes(const Tokens& tokens, size_t i) {
  for (;;) {
    if (is_at(tokens, i, tok::l_square) && is_at(tokens, i + 1, tok::l_square))
      i = behind_bracket(tokens, i);
    else if ((is_at(tokens, i, tok::kw___attribute) || is_at(tokens, i, tok::kw_alignas)) &&
             is_at(tokens, i + 1, tok::l_paren))
      i = behind_bracket(tokens, i + 1);
    else
      return i;
  }
}

bool opens_namespace(const Tokens& tokens, size_t i) {
  if (i >= 2 && tokens[i - 1].is(tok::string_literal) && tokens[i - 2].is(tok::kw_extern)) return true;
  for (size_t k = i; k-- > 0;) {
    if (tokens[k].is(tok::kw_namespace)) return true;
    if (!tokens[k].isOneOf(tok::identifier, tok::coloncolon, tok::kw_inline, tok::l_square, tok::r_square))
      return false;
  }
  return false;
}

void ScopeTracker::advance(const Tokens& tokens, size_t i) {
  switch (tokens[i].getKind()) {
    case tok::l_paren:
      ++parentheses;
      break;
    case tok::r_paren:
      parentheses = std::max(0, parentheses - 1);
      break;
    case tok::l_brace: {
      const bool is_namespace = at_namespace_scope() && opens_namespace(tokens, i);
      namespaces.push_back(is_namespace);
      if (!is_namespace) ++others;
      break;
    }
    case tok::r_brace:
      if (!namespaces.empty()) {
        if (!namespaces.back()) --others;
        namespaces.pop_back();
      }
      break;
    default:
      break;
  }
}

std::string spelling(const Tokens& tokens, size_t begin, size_t end, Preprocessor& preprocessor) {
  std::string text;
  for (size_t i = begin; i < end && i < tokens.size(); ++i) {
    if (tokens[i].isAnnotation()) continue;
    if (!text.empty()) text += ' ';
    text += preprocessor.getSpelling(tokens[i]);
  }
  return text;
}

std::vector<Declared> declared_names(const Tokens& tokens, size_t begin, Preprocessor& preprocessor) {
  std::vector<Declared> found;
  collect(tokens, begin, "", preprocessor, found);
  std::erase_if(found, [](const Declared& declared) { return declared.name.empty(); });
  return found;
}

std::set<std::string> referred_names(const Tokens& tokens, Preprocessor& preprocessor) {
  std::set<std::string> referred, declared;
  for (size_t i = 0; i < tokens.size();) {
    const size_t end = std::max(behind_item(tokens, i), i + 1);
    std::set<std::string> here;
    for (const auto& one : declared_names(tokens, i, preprocessor))
      if (one.replaces && one.path.empty() && one.form != Declared::function_definition &&
          one.form != Declared::function_declaration)
        here.insert(one.name);
    for (size_t k = i; k < end && k < tokens.size(); ++k) {
      const std::string name = identifier(tokens, k);
      if (!name.empty() && !declared.contains(name) && !here.contains(name)) referred.insert(name);
    }
    declared.merge(here);
    i = end;
  }
  return referred;
}

void edit_tokens(Tokens& tokens, Preprocessor& preprocessor, const TokenEdits& edits) {
  Marks dropped(tokens.size(), false), made_inline(tokens.size(), false);
  std::map<size_t, size_t> named;  // brace of a type without a name → the name that it gets
  ScopeTracker scope;
  bool item_begins = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (scope.at_namespace_scope()) {
      if (tokens[i].is(tok::kw_namespace)) {
        const size_t brace = behind_attributes(tokens, i + 1);
        if (is_at(tokens, brace, tok::l_brace)) {
          const size_t behind = behind_bracket(tokens, brace);
          for (size_t k = i; k <= brace; ++k) dropped[k] = true;
          if (behind > 0 && is_at(tokens, behind - 1, tok::r_brace)) dropped[behind - 1] = true;
        }
      } else if (tokens[i].is(tok::kw_static) &&
                 !(is_at(tokens, i + 1, tok::kw_union) && is_at(tokens, i + 2, tok::l_brace))) {
        dropped[i] = true;
      }
      if (item_begins)
        if (const auto unnamed_type = find_unnamed_type(tokens, i)) named.insert(*unnamed_type);
      if (item_begins && !dropped[i]) {
        const size_t name = find_declarator(tokens, i);
        if (name < tokens.size() && !is_at(tokens, i, tok::kw_extern) &&
            tokens[name + 1].isOneOf(tok::equal, tok::l_brace, tok::l_paren)) {
          // A function has a body behind its parentheses; a variable has none.
          const size_t end = behind_item(tokens, i);
          const bool function =
              is_at(tokens, name + 1, tok::l_paren) && end > 0 && is_at(tokens, end - 1, tok::r_brace);
          if (!function && edit_initializer(tokens, name, end, edits.capture_defaults, dropped))
            made_inline[i] = !is_at(tokens, i, tok::kw_inline);
        }
      }
      item_begins = tokens[i].isOneOf(tok::semi, tok::r_brace, tok::l_brace) || dropped[i];
    }
    const bool was_inside = !scope.at_namespace_scope();
    scope.advance(tokens, i);
    if (was_inside && scope.at_namespace_scope()) item_begins = tokens[i].isOneOf(tok::r_brace, tok::semi);
  }
  Tokens edited;
  edited.reserve(tokens.size() + 8);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (dropped[i]) continue;
    if (made_inline[i]) {
      Token token = tokens[i];
      token.setKind(tok::kw_inline);
      token.setIdentifierInfo(preprocessor.getIdentifierInfo("inline"));
      token.setLength(0);
      edited.push_back(token);
    }
    if (const auto name = named.find(i); name != named.end()) {
      edited.push_back(tokens[name->second]);
      edited.back().setLocation(tokens[i].getLocation());
    }
    edited.push_back(tokens[i]);
  }
  tokens = std::move(edited);
}

}  // namespace lockstep::compiler
