#include "worker/process/demangle.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "protocol/cell_abi.h"

namespace {

constexpr std::string_view kCTag = ".__cell_";

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Returns the place after the argument of a template that begins at `begin`: at its comma or its `>`.
size_t end_of_argument(std::string_view name, size_t begin) {
  int depth = 0;
  for (size_t i = begin; i < name.size(); ++i) {
    const char c = name[i];
    const bool arrow = c == '>' && i > 0 && (name[i - 1] == '-' || name[i - 1] == '=');
    if (depth == 0 && (c == ',' || (c == '>' && !arrow))) return i;
    if (c == '<' || c == '(' || c == '[' || c == '{') ++depth;
    if ((c == '>' && !arrow) || c == ')' || c == ']' || c == '}') --depth;
  }
  return name.size();
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

/// Whether `argument` is what the standard library's template `of` takes by default behind `first`.
bool is_default(std::string_view of, std::string_view first, std::string_view argument) {
  const auto is = [&](std::string_view name, std::string_view inner) {
    return argument.size() == name.size() + inner.size() + 2 && argument.starts_with(name) &&
           argument.substr(name.size() + 1).starts_with(inner) && argument.back() == '>';
  };
  const auto argument_name = argument.substr(0, argument.find('<'));
  if (argument_name == "std::allocator" || argument_name == "std::default_delete") return true;
  if (is("std::char_traits", first) || is("std::less", first) || is("std::hash", first) || is("std::equal_to", first))
    return true;
  if ((of == "std::stack" || of == "std::queue") && is("std::deque", first)) return true;
  if (of == "std::priority_queue" && is("std::vector", first)) return true;
  return false;
}

struct Alias {
  std::string_view name, alias;
};
constexpr Alias kAliases[] = {
    {"std::basic_string<char>", "std::string"},
    {"std::basic_string<wchar_t>", "std::wstring"},
    {"std::basic_string<char8_t>", "std::u8string"},
    {"std::basic_string<char16_t>", "std::u16string"},
    {"std::basic_string<char32_t>", "std::u32string"},
    {"std::basic_string_view<char>", "std::string_view"},
    {"std::basic_ostream<char>", "std::ostream"},
    {"std::basic_istream<char>", "std::istream"},
    {"std::basic_iostream<char>", "std::iostream"},
    {"std::basic_ifstream<char>", "std::ifstream"},
    {"std::basic_ofstream<char>", "std::ofstream"},
    {"std::basic_fstream<char>", "std::fstream"},
    {"std::basic_stringstream<char>", "std::stringstream"},
    {"std::basic_ostringstream<char>", "std::ostringstream"},
    {"std::basic_istringstream<char>", "std::istringstream"},
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

/// Takes default arguments out of the template whose `<` is at `open`, the innermost templates first. Returns where its
/// `>` is then.
size_t shorten_template(std::string& name, size_t open) {
  size_t word = open;
  while (word > 0 && (is_word(name[word - 1]) || name[word - 1] == ':')) --word;
  const std::string of = name.substr(word, open - word);
  std::string first;
  size_t at = open + 1;
  for (size_t index = 0;; ++index) {
    // The inner ones come first, so that `std::less<std::string>` is compared with `std::string`.
    size_t end = end_of_argument(name, at);
    for (size_t i = at; i < end; ++i)
      if (name[i] == '<' && i > 0 && is_word(name[i - 1])) {
        const size_t before = name.size();
        i = shorten_template(name, i);
        end -= before - name.size();
      }
    std::string argument(trimmed(std::string_view(name).substr(at, end - at)));
    for (const auto& [from, to] : kAliases) replace_all(argument, from, to);
    const bool left_out = index > 0 && of.starts_with("std::") && is_default(of, first, argument);
    if (left_out) {
      name.erase(at - 1, end - at + 1);  // with the comma before it
      end = at - 1;
    } else {
      name.replace(at, end - at, (index > 0 ? " " : "") + argument);
      end = at + argument.size() + (index > 0 ? 1 : 0);
    }
    if (index == 0) first = argument;
    if (end >= name.size() || name[end] == '>') return end;
    at = end + 1;
  }
}

/// Writes names of the standard library's types as people do.
void shorten(std::string& name) {
  replace_all(name, "std::__cxx11::", "std::");
  replace_all(name, "std::chrono::_V2::", "std::chrono::");
  for (size_t i = 0; i < name.size(); ++i)
    if (name[i] == '<' && i > 0 && is_word(name[i - 1]) && !std::string_view(name).substr(0, i).ends_with("operator"))
      i = shorten_template(name, i);
  for (const auto& [from, to] : kAliases) replace_all(name, from, to);
}

}  // namespace

namespace lockstep::worker {

size_t clean_name(char* name, size_t length) {
  constexpr std::string_view kPrefix = "__cell_";
  size_t to = 0;
  for (size_t from = 0; from < length;) {
    const std::string_view rest(name + from, length - from);
    if (rest.starts_with(kCellTagDemangled)) {
      const size_t end = rest.find(']');
      from += end == std::string_view::npos ? rest.size() : end + 1;
      continue;
    }
    if (rest.starts_with(kPrefix) && (to == 0 || !is_word(name[to - 1]))) {
      size_t end = kPrefix.size();
      while (end < rest.size() && is_word(rest[end])) ++end;
      if (rest.substr(end).starts_with("::")) {
        from += end + 2;
        continue;
      }
    }
    name[to++] = name[from++];
  }
  return to;
}

std::string clean_name(std::string name) {
  name.resize(clean_name(name.data(), name.size()));
  // A type that clang calls $_0, $_1, ... has no name.
  for (size_t at = name.find("$_"); at != std::string::npos; at = name.find("$_", at)) {
    size_t end = at + 2;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
    const bool lambda = name.compare(end, 12, "::operator()") == 0;
    if (end > at + 2) name.replace(at, end - at, lambda ? "{lambda}" : "{unnamed}");
    ++at;
  }
  shorten(name);
  return name;
}

std::string demangle(const char* symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string result = status == 0 && text ? clean_name(std::string(text)) : symbol;
  // An extern "C" name has the cell's tag behind it.
  if (status != 0 || !text) result.resize(std::min(result.find(kCTag), result.size()));
  std::free(text);
  return result;
}

std::string demangle(const std::type_info& type) { return demangle(type.name()); }

}  // namespace lockstep::worker
