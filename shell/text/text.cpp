#include "shell/text/text.h"

#include <fmt/format.h>
#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

namespace lockstep::shell {
namespace {

/// Uses the tables of Unicode, whatever the user's locale is.
int width_of(char32_t code) {
  static const locale_t unicode = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (!unicode) return 1;
  const locale_t before = ::uselocale(unicode);
  const int width = ::wcwidth(static_cast<wchar_t>(code));
  ::uselocale(before);
  return width;
}

/// Whether an escape sequence sets colours: "\033[1;31m".
bool is_colour(std::string_view escape) {
  return escape.starts_with("\033[") && escape.ends_with('m') &&
         escape.substr(2, escape.size() - 3).find_first_not_of("0123456789;:") == std::string_view::npos;
}

/// Calls `piece(bytes, columns)` for each character and escape sequence; stops when it returns false.
template <typename Piece>
void walk(std::string_view text, Piece piece) {
  int column = 0;
  for (size_t at = 0; at < text.size();) {
    size_t bytes = escape_length(text.substr(at));
    int width = 0;
    if (bytes == 0) {
      const Character character = first_character(text.substr(at));
      bytes = character.bytes;
      width = character.code == '\t' ? 8 - column % 8 : character_width(character.code);
    }
    if (!piece(bytes, width)) return;
    column += width;
    at += bytes;
  }
}

}  // namespace

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_name_character(text[at - 1])) && (end == text.size() || !is_name_character(text[end])))
      return true;
  }
  return false;
}

int character_width(char32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return 0;
  if (code < 0x300) return 1;
  const int width = width_of(code);
  return width < 0 ? 1 : width;  // newer than the tables
}

size_t escape_length(std::string_view text) {
  if (text.size() < 1 || text[0] != '\033') return 0;
  if (text.size() == 1) return 1;
  if (text[1] == '[') {
    size_t i = 2;
    while (i < text.size() &&
           (static_cast<unsigned char>(text[i]) < 0x40 || static_cast<unsigned char>(text[i]) > 0x7E))
      ++i;
    return std::min(i + 1, text.size());
  }
  if (text[1] == ']') {
    for (size_t i = 2; i < text.size(); ++i) {
      if (text[i] == '\a') return i + 1;
      if (text[i] == '\033') return std::min(i + 2, text.size());
    }
    return text.size();
  }
  return 2;
}

std::string without_controls(std::string_view text, bool keeps_colours) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    size_t bytes = character.bytes;
    if (text[0] == '\n' || text[0] == '\t' || (character.code >= 0x20 && character.code < 0x7F)) {
      result += text[0];
    } else if (text.starts_with("\r\n")) {  // the line end of other systems
    } else if (keeps_colours && is_colour(text.substr(0, escape_length(text)))) {
      bytes = escape_length(text);
      result += text.substr(0, bytes);
    } else if (character.code < 0x80) {
      result += '^';
      result += static_cast<char>(character.code ^ 0x40);
    } else if (character.code < 0xA0 || (character.code == 0xFFFD && bytes == 1)) {
      result += "\uFFFD";
    } else {
      result += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return result;
}

int text_width(std::string_view text) {
  int columns = 0;
  walk(text, [&](size_t, int width) {
    columns += width;
    return true;
  });
  return columns;
}

std::string_view fitting(std::string_view text, int columns) {
  size_t end = 0;
  walk(text, [&](size_t bytes, int width) {
    if (width > columns) return false;
    columns -= width;
    end += bytes;
    return true;
  });
  return text.substr(0, end);
}

std::vector<std::string> without_repeats(const std::vector<std::string>& lines, std::string_view dots) {
  constexpr size_t kLongest = 4, kLeast = 3;
  std::vector<std::string> result;
  for (size_t at = 0; at < lines.size();) {
    size_t length = 1, times = 1;
    for (size_t each = 1; each <= kLongest && times < kLeast; ++each) {
      size_t end = at + each;
      while (end < lines.size() && lines[end] == lines[end - each]) ++end;
      if ((end - at) / each >= kLeast) length = each, times = (end - at) / each;
    }
    const auto first = lines.begin() + static_cast<std::ptrdiff_t>(at);
    result.insert(result.end(), first, first + static_cast<std::ptrdiff_t>(length));
    if (times > 1)
      result.push_back(length == 1 ? fmt::format("{} {} times more", dots, times - 1)
                                   : fmt::format("{} these {} lines {} times more", dots, length, times - 1));
    at += length * times;
  }
  return result;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::string first_line(std::string_view text) {
  for (const std::string_view line : lines_of(text))
    if (line.find_first_not_of(" \t") != std::string_view::npos) return std::string(line);
  return "";
}

std::string padded(std::string text, int columns) {
  const int missing = columns - text_width(text);
  return missing > 0 ? text.append(static_cast<size_t>(missing), ' ') : text;
}

bool is_name(std::string_view text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), is_name_character);
}

std::string last_part(const std::string& name) {
  const size_t scope = name.rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

std::wstring to_wide(std::string_view text) {
  std::wstring result;
  while (!text.empty()) {
    const Character character = first_character(text);
    result += static_cast<wchar_t>(character.code);
    text.remove_prefix(character.bytes);
  }
  return result;
}

std::string to_utf8(std::wstring_view text) {
  std::string result;
  for (const wchar_t wide : text) append_utf8(result, static_cast<char32_t>(wide));
  return result;
}

std::vector<std::string> wrapped(std::string_view text, int columns) {
  std::vector<std::string> result;
  for (std::string_view line : lines_of(text)) {
    if (columns <= 0 || text_width(line) <= columns) {
      result.emplace_back(line);
      continue;
    }
    const std::string indent(line.substr(0, std::min(line.find_first_not_of(' '), line.size())));
    std::string row = indent;
    bool has_word = false;
    line.remove_prefix(indent.size());
    while (!line.empty()) {
      const size_t word_begin = std::min(line.find_first_not_of(' '), line.size());
      const size_t word_end = std::min(line.find(' ', word_begin), line.size());
      if (has_word && text_width(row) + text_width(line.substr(0, word_end)) > columns) {
        result.push_back(std::exchange(row, indent));
        line.remove_prefix(word_begin);
        has_word = false;
        continue;
      }
      row += line.substr(0, word_end);
      has_word = true;
      line.remove_prefix(word_end);
    }
    result.push_back(std::move(row));
  }
  return result;
}

}  // namespace lockstep::shell
