#include "compiler/tokens/cell_tokens.h"

#include <algorithm>

namespace lockstep::compiler {

using namespace clang;

namespace {

/// Whether `token` may end what comes before the name in `TYPE name`.
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

}  // namespace

Tokens raw_tokens(llvm::StringRef text, const LangOptions& language) {
  Lexer lexer(SourceLocation(), language, text.begin(), text.begin(), text.end());
  Tokens tokens;
  for (Token token;;) {
    lexer.LexFromRawLexer(token);
    if (token.is(tok::eof)) return tokens;
    tokens.push_back(token);
  }
}

std::string identifier(const Tokens& tokens, size_t i) {
  if (!is_at(tokens, i, tok::identifier)) return "";
  return tokens[i].getIdentifierInfo()->getName().str();
}

bool is_class_key(const Token& token) {
  return token.isOneOf(tok::kw_struct, tok::kw_class, tok::kw_union, tok::kw_enum);
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

size_t after_bracket(const Tokens& tokens, size_t i) {
  int depth = 0;
  for (; i < tokens.size(); ++i) {
    if (tokens[i].isOneOf(tok::l_paren, tok::l_square, tok::l_brace)) ++depth;
    if (tokens[i].isOneOf(tok::r_paren, tok::r_square, tok::r_brace) && --depth <= 0) return i + 1;
  }
  return i;
}

size_t after_attributes(const Tokens& tokens, size_t i) {
  for (;;) {
    if (is_at(tokens, i, tok::l_square) && is_at(tokens, i + 1, tok::l_square))
      i = after_bracket(tokens, i);
    else if ((is_at(tokens, i, tok::kw___attribute) || is_at(tokens, i, tok::kw_alignas)) &&
             is_at(tokens, i + 1, tok::l_paren))
      i = after_bracket(tokens, i + 1);
    else
      return i;
  }
}

size_t after_angle(const Tokens& tokens, size_t i) {
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
        k = after_bracket(tokens, k) - 1;
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

size_t after_item(const Tokens& tokens, size_t begin) {
  for (size_t i = begin; i < tokens.size();) {
    if (tokens[i].is(tok::semi)) return i + 1;
    if (tokens[i].isOneOf(tok::l_paren, tok::l_square, tok::l_brace)) {
      const bool brace = tokens[i].is(tok::l_brace);
      const bool initializer = brace && i > begin && tokens[i - 1].isOneOf(tok::equal, tok::comma, tok::l_paren);
      i = after_bracket(tokens, i);
      const bool goes_on = i < tokens.size() && tokens[i].isOneOf(tok::semi, tok::comma, tok::period, tok::l_paren,
                                                                  tok::equal, tok::identifier, tok::star, tok::amp);
      if (brace && !initializer && !goes_on) return i;
    } else {
      ++i;
    }
  }
  return tokens.size();
}

bool defines_type(const Tokens& tokens, size_t i) {
  if (i >= tokens.size() || !is_class_key(tokens[i])) return false;
  const bool scoped_enum = is_at(tokens, i, tok::kw_enum) && i + 1 < tokens.size() && is_class_key(tokens[i + 1]);
  i = after_attributes(tokens, i + (scoped_enum ? 2 : 1));
  while (is_at(tokens, i, tok::identifier)) {
    if (is_at(tokens, ++i, tok::less)) i = after_angle(tokens, i);
    if (!is_at(tokens, i, tok::coloncolon)) break;
    ++i;
  }
  if (identifier(tokens, i) == "final") ++i;
  return is_at(tokens, i, tok::l_brace) || is_at(tokens, i, tok::colon);
}

size_t find_declarator(const Tokens& tokens, size_t begin) {
  if (defines_type(tokens, begin)) return tokens.size();
  for (size_t i = begin; i < tokens.size();) {
    const Token& token = tokens[i];
    if (token.is(tok::identifier)) {
      if (is_at(tokens, i + 1, tok::less)) {
        const size_t after = after_angle(tokens, i + 1);
        if (after == i + 1) return tokens.size();
        i = after;
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
      i = after_bracket(tokens, i + 1);
    } else if (token.is(tok::l_square) && is_at(tokens, i + 1, tok::l_square)) {
      i = after_bracket(tokens, i);
    } else {
      return tokens.size();
    }
  }
  return tokens.size();
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

bool keeps_state(const Tokens& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const Token& token) {
    return token.isOneOf(tok::kw_static, tok::kw_thread_local, tok::kw__Thread_local, tok::kw___thread, tok::kw_extern);
  });
}

}  // namespace lockstep::compiler
