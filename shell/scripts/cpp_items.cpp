#include "shell/scripts/cpp_items.h"

#include <algorithm>

namespace lockstep::shell {

std::optional<CppItem> CppItems::next() {
  if (at_ >= last_) return std::nullopt;
  CppItem item;
  item.begin = at_;
  item.declares = declares(at_);
  item.end = end_of(at_, item.declares);
  if (item.declares) read_names(item);
  item.block = block_of(item);
  at_ = item.end;
  return item;
}

size_t CppItems::after_bracket(size_t i) const {
  int depth = 0;
  for (; i < last_; ++i) {
    if (is_any_of(text(i), {"(", "[", "{"})) ++depth;
    if (is_any_of(text(i), {")", "]", "}"}) && --depth == 0) return i + 1;
  }
  return last_;
}

size_t CppItems::after_angle(size_t i) const {
  int depth = 0;
  for (size_t k = i; k < last_; ++k) {
    if (is_any_of(text(k), {"(", "[", "{"})) {
      k = after_bracket(k) - 1;
    } else if (text(k) == "<") {
      ++depth;
    } else if (text(k) == ">") {
      if (--depth == 0) return k + 1;
    } else if (is_any_of(text(k), {";", ")", "]", "}"})) {
      break;
    }
  }
  return i;
}

size_t CppItems::after_name(size_t i, size_t* last_name) const {
  size_t k = i;
  if (text(k) == "::") ++k;
  for (;;) {
    if (text(k) == "template" || text(k) == "typename") ++k;
    if (!is_word(k)) return i;
    if (last_name) *last_name = k;
    ++k;
    if (text(k) == "<") k = after_angle(k);
    if (text(k) != "::" || !is_word(k + 1)) return k;
    ++k;
  }
}

bool CppItems::is_type_word(std::string_view word) {
  return is_any_of(word, {"unsigned", "signed", "long", "short", "int", "char", "bool", "float", "double", "void",
                          "wchar_t", "char8_t", "char16_t", "char32_t", "size_t"});
}

bool CppItems::is_specifier(std::string_view word) {
  return is_any_of(word, {"const", "constexpr", "consteval", "constinit", "static", "inline", "thread_local",
                          "volatile", "mutable", "register", "auto", "friend"});
}

bool CppItems::is_declaring_macro(std::string_view word) {
  return word.starts_with("TORCH_MODULE") || word.starts_with("TORCH_LIBRARY") || word.starts_with("C10_DE");
}

size_t CppItems::after_type(size_t i) const {
  size_t k = i;
  bool has_type = false;
  for (;; ++k) {
    if (is_any_of(text(k), {"auto"}) || is_type_word(text(k)))
      has_type = true;
    else if (!is_specifier(text(k)))
      break;
  }
  if (text(k) == "decltype") {
    k = after_bracket(k + 1);
    has_type = true;
  }
  if (text(k) == "typename") ++k;
  if (!has_type && is_any_of(text(k), {"struct", "class", "enum", "union"})) ++k;
  if (!has_type) {
    const size_t after = after_name(k);
    if (after == k) return i;
    k = after;
  }
  while (is_any_of(text(k), {"*", "&", "const", "volatile"})) ++k;
  return k;
}

bool CppItems::declares(size_t i) const {
  const std::string_view first = text(i);
  if (is_any_of(first, {"struct", "class", "union", "enum", "template", "using", "namespace", "typedef", "extern",
                        "static_assert", "concept", "asm"}) ||
      is_specifier(first))
    return true;
  if (first == "[" && text(i + 1) == "[") return true;
  if (is_declaring_macro(first)) return true;
  if (!is_word(i) && first != "::") return false;
  if (is_any_of(first, {"if",
                        "for",
                        "while",
                        "do",
                        "switch",
                        "try",
                        "else",
                        "catch",
                        "case",
                        "default",
                        "return",
                        "throw",
                        "delete",
                        "new",
                        "this",
                        "sizeof",
                        "break",
                        "continue",
                        "goto",
                        "true",
                        "false",
                        "nullptr",
                        "co_await",
                        "co_return",
                        "co_yield",
                        "not",
                        "alignof",
                        "typeid",
                        "static_cast",
                        "dynamic_cast",
                        "reinterpret_cast",
                        "const_cast",
                        "operator"}))
    return false;
  size_t last_name = i;
  const size_t name_end = after_name(i, &last_name);
  // It is Net::Net() {} or Net::~Net() {}.
  if (text(name_end) == "(" && last_name > i + 1 && text(last_name - 1) == "::" &&
      text(last_name) == text(last_name - 2))
    return true;
  if (text(name_end) == "::" && text(name_end + 1) == "~") return true;
  const size_t after = after_type(i);
  if (after == i || !is_word(after)) return false;
  return !is_any_of(text(after), {"and", "or", "xor", "not_eq", "bitand", "bitor"});
}

size_t CppItems::end_of(size_t i, bool declares) const {
  size_t k = i;
  const std::string_view first = text(i);
  if (first == "template" && text(i + 1) == "<") k = after_angle(i + 1);
  const bool has_class_key = is_any_of(text(k), {"struct", "class", "union", "enum", "typedef"});
  const bool is_control = !declares && is_any_of(first, {"if", "for", "while", "do", "switch", "try", "else", "catch"});
  const bool is_block = is_any_of(first, {"namespace", "extern"}) || (first == "inline" && text(i + 1) == "namespace");
  if (!declares && first == "{") return after_bracket(i);
  bool has_value = false, has_result = false;  // `=` and `->`
  for (; k < last_; ++k) {
    if (text(k) == ";") return k + 1;
    has_value |= text(k) == "=";
    has_result |= text(k) == "->";
    if (is_any_of(text(k), {"(", "["})) {
      k = after_bracket(k) - 1;
    } else if (text(k) == "{") {
      const std::string_view before = k > i ? text(k - 1) : std::string_view();
      const bool is_body = declares && !has_class_key && !has_value &&
                           (has_result || is_any_of(before, {")", "}", "const", "noexcept", "override"}));
      k = after_bracket(k) - 1;
      if (is_control || is_body || is_block) return k + 1;
      if (has_class_key) continue;
      const std::string_view next = text(k + 1);
      if (!next.empty() &&
          is_any_of(next, {";", ",", ".", ")", "->", "+", "-", "/", "<", ">", "=", "?", ":", "|", "[", "(", "{", "%"}))
        continue;
      return k + 1;
    } else if (is_any_of(text(k), {")", "]", "}"})) {
      continue;  // what does not compile
    }
  }
  return last_;
}

void CppItems::read_names(CppItem& item) const {
  size_t k = item.begin;
  const auto add = [&](std::string_view name) { item.names.push_back({std::string(name), std::nullopt}); };
  while (text(k) == "[" && text(k + 1) == "[") k = after_bracket(k);
  if (text(k) == "extern") k += k + 1 < last_ && tokens_[k + 1].kind == CppToken::string ? 2 : 1;
  const bool is_special = text(k) == "template" && text(k + 1) == "<" && text(k + 2) == ">";
  if (text(k) == "template") k = after_angle(k + 1);
  if (text(k) == "requires") return;
  if (is_declaring_macro(text(k))) return add(text(k + 2));
  if (text(k) == "using") {
    if (is_word(k + 1) && text(k + 2) == "=")
      add(text(k + 1));
    else if (text(k + 1) != "namespace" && is_word(item.end - 2))
      item.adds_to = text(item.end - 2);
    return;
  }
  if (text(k) == "concept") return add(text(k + 1));
  if (text(k) == "namespace") {
    item.is_include_like =
        is_any_of(text(k + 1), {"std", "torch", "at", "c10", "c10d", "lockstep", "dist", "ddp"}) && text(k + 2) != "=";
    if (text(k + 2) == "=") add(text(k + 1));
    return;
  }
  if (text(k) == "typedef") {
    if (item.end >= 2 && is_word(item.end - 2)) add(text(item.end - 2));
    return;
  }
  if (is_any_of(text(k), {"struct", "class", "union", "enum"})) {
    const bool is_std = text(k + 1) == "std" && text(k + 2) == "::";
    if (is_std) item.is_include_like = true;
    size_t name = k + 1;
    if (is_any_of(text(name), {"struct", "class"})) ++name;
    while (text(name) == "[") name = after_bracket(name);
    if (is_word(name) && is_any_of(text(name + 1), {"{", ":", "final"})) return add(text(name));
    if (is_any_of(text(name + 1), {";", "<", "::"})) {
      item.adds_to = text(name);
      return;
    }
  }
  size_t at = after_type(k);
  if (text(at) == "[") {  // auto [a, b] = …
    for (size_t i = at + 1; i < item.end && text(i) != "]"; ++i)
      if (is_word(i)) add(text(i));
    return;
  }
  // void Net::f() {}, T Holder<T>::f() {}, Net::Net() {}, a specialisation
  const size_t first = is_word(at) ? at : k;
  if (is_special || text(text(first + 1) == "<" ? after_angle(first + 1) : first + 1) == "::") {
    item.adds_to = text(first);
    return;
  }
  if (!is_word(at)) return;
  std::string name(text(at));
  if (name == "operator") {
    do name += text(++at);
    while (at + 1 < item.end && text(at + 1) != "(");
  }
  if (text(at + 1) == "(" && (text(item.end - 1) == "}" || name.starts_with("operator"))) {
    std::string parameters;
    for (size_t i = at + 1, end = after_bracket(at + 1); i < end; ++i) parameters += std::string(text(i)) + " ";
    item.names.push_back({name, parameters});
    return;
  }
  add(text(at));
  for (size_t i = at + 1; i < item.end; ++i) {  // int a = 1, b = 2;
    if (is_any_of(text(i), {"(", "[", "{"})) i = after_bracket(i) - 1;
    if (text(i) == "<" && after_angle(i) != i) i = after_angle(i) - 1;
    if (text(i) != ",") continue;
    size_t name = i + 1;
    while (is_any_of(text(name), {"*", "&"})) ++name;
    if (is_word(name)) add(text(name));
  }
}

std::optional<CppBlock> CppItems::block_of(const CppItem& item) const {
  size_t k = item.begin + (text(item.begin) == "inline" ? 1 : 0);
  const bool is_extern = text(k) == "extern" && text(k + 2) == "{";
  if (!is_extern && text(k) != "namespace") return std::nullopt;
  CppBlock block;
  for (++k; k < item.end && text(k) != "{"; ++k) {
    if (text(k) == "=") return std::nullopt;
    if (text(k) == "[") k = after_bracket(k) - 1;
    if (is_word(k) && text(k) != "inline") block.space += std::string(text(k)) + "::";
  }
  block.begin = std::min(k + 1, item.end);
  block.end = std::max(block.begin, item.end - (text(item.end - 1) == "}" ? 1 : 0));
  return block;
}

}  // namespace lockstep::shell
