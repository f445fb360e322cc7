#include "shell/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

namespace lockstep::shell {
namespace {

struct Range {
  char32_t first, last;
};

// The blocks of Unicode that terminals draw in no column, and in two. Not every code point of the standard's tables:
// those that meet a terminal of programs.
constexpr Range kZeroWidth[] = {
    {0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x610, 0x61A},     {0x64B, 0x65F},    {0x900, 0x902},
    {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F}, {0x202A, 0x202E},   {0x2060, 0x2064},  {0x20D0, 0x20FF},
    {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0x1F3FB, 0x1F3FF}, {0xE0100, 0xE01EF}};
constexpr Range kDoubleWidth[] = {
    {0x1100, 0x115F}, {0x231A, 0x231B},   {0x2329, 0x232A},   {0x23E9, 0x23EC},   {0x25FD, 0x25FE},  {0x2614, 0x2615},
    {0x2648, 0x2653}, {0x26A1, 0x26A1},   {0x26BD, 0x26BE},   {0x2705, 0x2705},   {0x270A, 0x270B},  {0x274C, 0x274C},
    {0x2753, 0x2755}, {0x2757, 0x2757},   {0x2795, 0x2797},   {0x2E80, 0x303E},   {0x3041, 0x33FF},  {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF}, {0xA000, 0xA4CF},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},  {0xFF00, 0xFF60},
    {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

template <size_t N>
bool contains(const Range (&ranges)[N], char32_t code) {
  const Range* range = std::lower_bound(std::begin(ranges), std::end(ranges), code,
                                        [](const Range& range, char32_t code) { return range.last < code; });
  return range != std::end(ranges) && range->first <= code;
}

/// As first_character, but zero bytes where `text` does not begin with well-formed UTF-8.
Character decode(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return {};
  char32_t code = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3F);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, length};
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

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Character character = decode(text.substr(at));
    if (character.bytes == 0) return at;
    at += character.bytes;
  }
  return std::nullopt;
}

Character first_character(std::string_view text) {
  const Character character = decode(text);
  return character.bytes ? character : Character{0xFFFD, 1};
}

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

int character_width(char32_t code) {
  if (code < 0x20 || code == 0x7F) return 0;
  if (code < 0x300) return 1;
  if (contains(kZeroWidth, code)) return 0;
  return contains(kDoubleWidth, code) ? 2 : 1;
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
  const auto add = [&](char32_t bits) { result += static_cast<char>(bits); };
  for (const wchar_t wide : text) {
    const auto code = static_cast<char32_t>(wide);
    if (code < 0x80) {
      add(code);
    } else if (code < 0x800) {
      add(0xC0 | (code >> 6));
      add(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      add(0xE0 | (code >> 12));
      add(0x80 | ((code >> 6) & 0x3F));
      add(0x80 | (code & 0x3F));
    } else {
      add(0xF0 | (code >> 18));
      add(0x80 | ((code >> 12) & 0x3F));
      add(0x80 | ((code >> 6) & 0x3F));
      add(0x80 | (code & 0x3F));
    }
  }
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
