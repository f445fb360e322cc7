#include "compiler/tokens/token_edits.h"

#include <map>
#include <optional>
#include <set>

namespace lockstep::compiler {

using namespace clang;

namespace {

/// Whether the `[` at `i` is the start of a lambda with a capture default.
bool has_capture_default(const Tokens& tokens, size_t i) {
  return is_at(tokens, i, tok::l_square) && (is_at(tokens, i + 1, tok::amp) || is_at(tokens, i + 1, tok::equal)) &&
         (is_at(tokens, i + 2, tok::r_square) || is_at(tokens, i + 2, tok::comma));
}

/// Whether the `[` at `i` is the start of a lambda, judged by the token before it.
bool starts_lambda(const Tokens& tokens, size_t i) {
  if (!is_at(tokens, i, tok::l_square) || i == 0 || is_at(tokens, i + 1, tok::l_square)) return false;
  return tokens[i - 1].isOneOf(tok::equal, tok::l_paren, tok::comma, tok::l_brace, tok::kw_return, tok::question,
                               tok::colon, tok::plus, tok::exclaim, tok::ampamp, tok::pipepipe);
}

/// Skips the lambda whose `[` is at `i`, with its body.
size_t after_lambda(const Tokens& tokens, size_t i) {
  size_t k = after_bracket(tokens, i);
  while (k < tokens.size() && !tokens[k].isOneOf(tok::l_brace, tok::semi)) {
    if (tokens[k].isOneOf(tok::l_paren, tok::l_square))
      k = after_bracket(tokens, k);
    else
      ++k;
  }
  return is_at(tokens, k, tok::l_brace) ? after_bracket(tokens, k) : k;
}

/// Has one mark per token.
using Marks = std::vector<bool>;

/// Marks the capture defaults of lambdas in the initialiser of the variable whose name is at `name`, except in lambdas
/// inside other lambdas. Returns whether there is a lambda.
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
    i = after_lambda(tokens, i);
  }
  return lambda;
}

/// Finds `struct {...} pair;` from `begin`: the positions of its brace and of the name of its first variable.
std::optional<std::pair<size_t, size_t>> find_unnamed_type(const Tokens& tokens, size_t begin) {
  size_t i = begin;
  while (i < tokens.size() && tokens[i].isOneOf(tok::kw_const, tok::kw_constexpr, tok::kw_constinit, tok::kw_inline,
                                                tok::kw_static, tok::kw_thread_local, tok::kw_volatile))
    ++i;
  if (i >= tokens.size() || !is_class_key(tokens[i])) return std::nullopt;
  const size_t brace = after_attributes(tokens, i + 1);
  if (!is_at(tokens, brace, tok::l_brace)) return std::nullopt;
  size_t name = after_bracket(tokens, brace);
  while (name < tokens.size() && tokens[name].isOneOf(tok::star, tok::amp, tok::kw_const, tok::kw_volatile)) ++name;
  if (!is_at(tokens, name, tok::identifier)) return std::nullopt;
  return std::pair(brace, name);
}

/// Returns the closing braces of the body and of the handlers of the main() whose name is at `name`, if it has a return
/// type other than void.
std::set<size_t> ends_of_main(const Tokens& tokens, size_t name) {
  if (name == 0 || identifier(tokens, name) != "main" || !is_at(tokens, name + 1, tok::l_paren)) return {};
  const Token& before = tokens[name - 1];
  if (before.is(tok::kw_void) || !before.isOneOf(tok::identifier, tok::kw_int, tok::kw_auto, tok::kw_signed)) return {};
  bool returns = !before.is(tok::kw_auto);
  size_t i = after_bracket(tokens, name + 1);
  for (; i < tokens.size() && !tokens[i].isOneOf(tok::l_brace, tok::kw_try); ++i) {
    if (tokens[i].isOneOf(tok::semi, tok::equal, tok::eof)) return {};
    returns |= tokens[i].is(tok::arrow);
  }
  if (!returns) return {};
  std::set<size_t> ends;
  if (is_at(tokens, i, tok::kw_try)) ++i;
  while (is_at(tokens, i, tok::l_brace)) {
    i = after_bracket(tokens, i);
    if (!is_at(tokens, i - 1, tok::r_brace)) return {};  // it is never closed
    ends.insert(i - 1);
    if (is_at(tokens, i, tok::kw_catch)) i = after_bracket(tokens, i + 1);
  }
  return ends;
}

/// Makes a token that no text contains.
Token made_token(const Token& place, tok::TokenKind kind, IdentifierInfo* name = nullptr) {
  Token token;
  token.startToken();
  token.setKind(kind);
  token.setIdentifierInfo(name);
  token.setLocation(place.getLocation());
  return token;
}

}  // namespace

void edit_tokens(Tokens& tokens, Preprocessor& preprocessor, const TokenEdits& edits) {
  Marks dropped(tokens.size(), false), made_inline(tokens.size(), false);
  std::map<size_t, size_t> named;  // brace of a type without a name → the name that it gets
  std::set<size_t> ends_of_mains;
  ScopeTracker scope;
  bool item_begins = true;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (scope.at_namespace_scope()) {
      if (scope.namespaces.empty()) ends_of_mains.merge(ends_of_main(tokens, i));
      if (tokens[i].is(tok::kw_namespace)) {
        const size_t brace = after_attributes(tokens, i + 1);
        if (is_at(tokens, brace, tok::l_brace)) {
          const size_t after = after_bracket(tokens, brace);
          for (size_t k = i; k <= brace; ++k) dropped[k] = true;
          if (after > 0 && is_at(tokens, after - 1, tok::r_brace)) dropped[after - 1] = true;
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
          // A function has a body after its parentheses; a variable has none.
          const size_t end = after_item(tokens, i);
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
    if (edits.refused(tokens[i])) {
      if (tokens[i].is(tok::identifier)) {
        Token equal = tokens[i];
        equal.setKind(tok::equal);
        equal.setIdentifierInfo(nullptr);
        edited.insert(edited.end(), {tokens[i], equal, tokens[i]});
      } else if (is_at(tokens, i + 1, tok::comma)) {
        ++i;
      }
      continue;
    }
    if (made_inline[i])
      edited.push_back(made_token(tokens[i], tok::kw_inline, preprocessor.getIdentifierInfo("inline")));
    if (ends_of_mains.contains(i))
      edited.insert(edited.end(), {made_token(tokens[i], tok::kw_return, preprocessor.getIdentifierInfo("return")),
                                   made_token(tokens[i], tok::l_brace), made_token(tokens[i], tok::r_brace),
                                   made_token(tokens[i], tok::semi)});
    if (const auto name = named.find(i); name != named.end()) {
      edited.push_back(tokens[name->second]);
      edited.back().setLocation(tokens[i].getLocation());
    }
    edited.push_back(tokens[i]);
  }
  tokens = std::move(edited);
}

}  // namespace lockstep::compiler
