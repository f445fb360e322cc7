#include "shell/text/xml_text.h"

#include "shell/text/text.h"

namespace lockstep::shell {

std::string xml_text(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character next = first_character(text);
    const char32_t c = next.code;
    const bool allowed = c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c != 0xFFFE && c != 0xFFFF);
    if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '&')
      result += "&amp;";
    else if (c == '"')
      result += "&quot;";
    else if (!allowed || (c == 0xFFFD && next.bytes == 1))
      result += "\xEF\xBF\xBD";
    else
      result += text.substr(0, next.bytes);
    text.remove_prefix(next.bytes);
  }
  return result;
}

}  // namespace lockstep::shell
