#include "worker/cell/show_text.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "protocol/utf8.h"

namespace lockstep {

std::string hexadecimal(const char* prefix, uintptr_t value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%s%02zx", prefix, value);
  return digits;
}

std::string escaped(std::string_view value, char quote) {
  std::string text(1, quote);
  for (const char c : value) {
    switch (c) {
      case '\n':
        text += "\\n";
        break;
      case '\t':
        text += "\\t";
        break;
      case '\r':
        text += "\\r";
        break;
      case '\\':
        text += "\\\\";
        break;
      default:
        if (c == quote)
          text += {'\\', c};
        else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
          text += hexadecimal("\\x", static_cast<unsigned char>(c));
        else
          text += c;
    }
  }
  return text += quote;
}

std::string utf8(const void* units, size_t count, size_t bytes_each) {
  const auto* bytes = static_cast<const char*>(units);
  if (bytes_each == 1) return {bytes, count};
  const auto unit = [&](size_t i) -> uint32_t {
    uint16_t two = 0;
    uint32_t four = 0;
    if (bytes_each == 2) return std::memcpy(&two, bytes + 2 * i, 2), two;
    return std::memcpy(&four, bytes + 4 * i, 4), four;
  };
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    uint32_t code = unit(i);
    const bool high = bytes_each == 2 && code >= 0xd800 && code < 0xdc00;
    if (high && i + 1 < count && unit(i + 1) >= 0xdc00 && unit(i + 1) < 0xe000)
      code = 0x10000 + ((code - 0xd800) << 10) + (unit(++i) - 0xdc00);
    append_utf8(text, code);
  }
  return text;
}

std::string decimal(unsigned __int128 value, bool is_negative) {
  if (is_negative) value = -value;
  std::string text;
  do {
    text.insert(text.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value != 0);
  return is_negative ? "-" + text : text;
}

std::vector<std::string_view> template_arguments(std::string_view text) {
  if (const size_t open = text.rfind(" = <"); open != text.npos && text.ends_with(">]"))
    text = text.substr(open + 4, text.size() - open - 6);
  std::vector<std::string_view> arguments;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size() && !text.empty(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '(' || c == '<' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == '>' || c == ']' || c == '}') --depth;
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    while (begin < i && text[begin] == ' ') ++begin;
    arguments.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return arguments;
}

std::string place_of_lambda(std::string_view text) {
  constexpr std::string_view kBefore = "(lambda at ";
  const size_t at = text.find(kBefore);
  if (at == text.npos) return "lambda";
  text = text.substr(at + kBefore.size());
  text = text.substr(0, text.rfind(')'));
  const size_t column = text.rfind(':');
  const size_t line = column == text.npos ? text.npos : text.rfind(':', column - 1);
  if (line == text.npos) return "lambda";
  const std::string number(text.substr(line + 1, column - line - 1));
  std::string_view file = text.substr(0, line);
  file = file.substr(file.rfind('/') + 1);
  if (file.starts_with("cell_") && file.ends_with(".cpp"))
    return "lambda of cell " + std::string(file.substr(5, file.size() - 9)) + ", line " + number;
  return "lambda of " + std::string(file) + ", line " + number;
}

}  // namespace lockstep
