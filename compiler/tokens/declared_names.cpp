#include "compiler/tokens/declared_names.h"

#include <algorithm>

namespace lockstep::compiler {

using namespace clang;

namespace {

/// Reads declarations one by one, also those in namespaces.
class NameCollector {
 public:
  NameCollector(const Tokens& tokens, Preprocessor& preprocessor) : tokens_(tokens), preprocessor_(preprocessor) {}

  void item(size_t begin, const std::string& path);
  std::vector<Declared> take() {
    std::erase_if(found_, [](const Declared& declared) { return declared.name.empty(); });
    return std::move(found_);
  }

 private:
  void items(size_t brace, const std::string& path);
  void name_space(size_t i, const std::string& path);
  bool type(size_t i, const std::string& path);
  void enumerators(size_t brace, const std::string& path);
  bool bindings(size_t i, const std::string& path);
  void function(size_t name, const std::string& path);
  void variables(size_t name, bool is_extern, bool is_template, const std::string& path);
  void add(const std::string& path, size_t name, Declared::Form form, bool replaces = true) {
    found_.push_back({path, identifier(tokens_, name), form, "", replaces});
  }
  bool at(size_t i, tok::TokenKind kind) const { return is_at(tokens_, i, kind); }

  const Tokens& tokens_;
  Preprocessor& preprocessor_;
  std::vector<Declared> found_;
};

/// Skips all `template <...>` at `i`.
size_t after_template_head(const Tokens& tokens, size_t i, bool& specialization) {
  while (is_at(tokens, i, tok::kw_template) && is_at(tokens, i + 1, tok::less)) {
    if (is_at(tokens, i + 2, tok::greater)) specialization = true;
    const size_t after = after_angle(tokens, i + 1);
    if (after == i + 1) break;
    i = after;
  }
  return i;
}

void NameCollector::item(size_t begin, const std::string& path) {
  size_t i = after_attributes(tokens_, begin);
  if (at(i, tok::kw_inline) && at(i + 1, tok::kw_namespace)) ++i;
  if (at(i, tok::kw_namespace)) return name_space(i, path);
  if (at(i, tok::kw_extern) && at(i + 1, tok::string_literal)) {
    if (at(i + 2, tok::l_brace)) return items(i + 2, path);
    i += 2;
  }
  const bool is_template = at(i, tok::kw_template);
  bool specialization = false;
  i = after_template_head(tokens_, i, specialization);
  if (specialization) return;
  if (at(i, tok::kw_concept)) return add(path, i + 1, Declared::type_definition);
  if (at(i, tok::kw_using)) {
    if (at(i + 1, tok::identifier) && at(i + 2, tok::equal)) add(path, i + 1, Declared::alias);
    return;
  }
  if (at(i, tok::kw_typedef)) {
    const size_t end = after_item(tokens_, i);
    if (end >= 2 && at(end - 2, tok::identifier)) add(path, end - 2, Declared::alias);
    ++i;
  }
  if (type(i, path) || bindings(i, path)) return;
  const bool is_extern = at(i, tok::kw_extern);
  const size_t name = find_declarator(tokens_, i);
  if (name >= tokens_.size()) return;
  if (at(name + 1, tok::l_paren))
    function(name, path);
  else
    variables(name, is_extern, is_template, path);
}

/// Reads the items between the brace at `brace` and its partner.
void NameCollector::items(size_t brace, const std::string& path) {
  const size_t end = after_bracket(tokens_, brace) - 1;
  for (size_t i = brace + 1; i < end;) {
    item(i, path);
    const size_t next = after_item(tokens_, i);
    if (next <= i) return;
    i = next;
  }
}

void NameCollector::name_space(size_t i, const std::string& path) {
  const size_t name = i + 1;
  std::string inner = path;
  for (++i; i < tokens_.size() && !at(i, tok::l_brace); ++i) {
    if (at(i, tok::equal)) return add(path, name, Declared::alias);
    if (at(i, tok::identifier)) inner += (inner.empty() ? "" : "::") + identifier(tokens_, i);
    if (at(i, tok::semi)) return;
  }
  if (i < tokens_.size()) items(i, inner);
}

/// Takes the definition of a class, a union or an enumeration at `i`, and the variable after it.
bool NameCollector::type(size_t i, const std::string& path) {
  if (i >= tokens_.size() || !is_class_key(tokens_[i])) return false;
  const bool enumeration = at(i, tok::kw_enum);
  size_t name = i + 1;
  if (enumeration && (at(name, tok::kw_class) || at(name, tok::kw_struct))) ++name;
  name = after_attributes(tokens_, name);
  if (!at(name, tok::identifier)) return false;
  if (!at(name + 1, tok::l_brace) && !at(name + 1, tok::colon) && identifier(tokens_, name + 1) != "final")
    return false;
  size_t brace = name + 1;
  while (brace < tokens_.size() && !tokens_[brace].isOneOf(tok::l_brace, tok::semi)) ++brace;
  if (!at(brace, tok::l_brace)) return false;
  add(path, name, Declared::type_definition);
  if (enumeration && at(i + 1, tok::identifier)) enumerators(brace, path);
  const size_t after = after_bracket(tokens_, brace);
  if (at(after, tok::identifier)) add(path, after, Declared::variable);
  return true;
}

/// Takes the enumerators of an unscoped enumeration, which are names of the scope that it is in.
void NameCollector::enumerators(size_t brace, const std::string& path) {
  const size_t end = after_bracket(tokens_, brace) - 1;
  bool expected = true;
  for (size_t i = brace + 1; i < end; ++i) {
    if (expected && at(i, tok::identifier)) add(path, i, Declared::variable);
    expected = at(i, tok::comma);
    if (tokens_[i].isOneOf(tok::l_paren, tok::l_square, tok::l_brace)) i = after_bracket(tokens_, i) - 1;
  }
}

/// Takes `auto [a, b] = ...`.
bool NameCollector::bindings(size_t i, const std::string& path) {
  if (!at(i, tok::kw_auto)) return false;
  ++i;
  while (i < tokens_.size() && tokens_[i].isOneOf(tok::amp, tok::ampamp, tok::kw_const)) ++i;
  if (!at(i, tok::l_square)) return false;
  for (++i; i < tokens_.size() && !at(i, tok::r_square); ++i)
    if (at(i, tok::identifier)) add(path, i, Declared::variable);
  return true;
}

/// `T x(1);` and `T f(int);` look alike; neither replaces functions of the same name.
void NameCollector::function(size_t name, const std::string& path) {
  const size_t after = after_bracket(tokens_, name + 1);
  size_t i = after;
  while (i < tokens_.size() && !tokens_[i].isOneOf(tok::l_brace, tok::semi, tok::equal, tok::comma, tok::eof))
    i = at(i, tok::l_paren) ? after_bracket(tokens_, i) : i + 1;
  const bool definition = at(i, tok::l_brace);
  found_.push_back({path, identifier(tokens_, name),
                    definition ? Declared::function_definition : Declared::function_declaration,
                    spelling(tokens_, name + 1, after, preprocessor_), definition});
}

void NameCollector::variables(size_t name, bool is_extern, bool is_template, const std::string& path) {
  add(path, name, Declared::variable, !is_extern || at(name + 1, tok::equal));
  if (is_template) return;
  // Further declarators come after each comma outside brackets.
  for (size_t i = name + 1; i < tokens_.size() && !tokens_[i].isOneOf(tok::semi, tok::eof);) {
    if (tokens_[i].isOneOf(tok::l_paren, tok::l_square, tok::l_brace)) {
      i = after_bracket(tokens_, i);
      continue;
    }
    if (at(i, tok::identifier) && at(i + 1, tok::less)) {
      const size_t after = after_angle(tokens_, i + 1);
      if (after > i + 1) {
        i = after;
        continue;
      }
    }
    if (at(i, tok::comma)) {
      size_t next = i + 1;
      while (next < tokens_.size() && tokens_[next].isOneOf(tok::star, tok::amp)) ++next;
      if (at(next, tok::identifier) && next + 1 < tokens_.size() &&
          tokens_[next + 1].isOneOf(tok::equal, tok::comma, tok::semi, tok::l_brace, tok::l_square, tok::l_paren))
        add(path, next, Declared::variable, !is_extern);
    }
    ++i;
  }
}

}  // namespace

std::vector<Declared> declared_names(const Tokens& tokens, size_t begin, Preprocessor& preprocessor) {
  NameCollector collector(tokens, preprocessor);
  collector.item(begin, "");
  return collector.take();
}

std::set<std::string> defined_functions(const Tokens& tokens, Preprocessor& preprocessor) {
  std::set<std::string> defined;
  for (size_t i = 0; i < tokens.size(); i = std::max(after_item(tokens, i), i + 1))
    for (const auto& one : declared_names(tokens, i, preprocessor))
      if (one.path.empty() && one.form == Declared::function_definition) defined.insert(one.name);
  return defined;
}

std::set<std::string> referred_names(const Tokens& tokens, Preprocessor& preprocessor) {
  std::set<std::string> referred, declared;
  for (size_t i = 0; i < tokens.size();) {
    const size_t end = std::max(after_item(tokens, i), i + 1);
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

}  // namespace lockstep::compiler
