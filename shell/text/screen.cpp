#include "shell/text/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "protocol/environment.h"

namespace lockstep::shell {
namespace {

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = protocol::variable(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Screen detect_screen(int fd) {
  Screen screen;
  const std::string type = protocol::variable("TERM");
  const bool is_terminal = ::isatty(fd) == 1;
  screen.terminal = is_terminal && !type.empty() && type != "dumb";
  screen.unicode = locale_is_utf8();
  const std::string forced = protocol::variable("CLICOLOR_FORCE");
  if (!forced.empty() && forced != "0")
    screen.colour = true;
  else
    screen.colour = screen.terminal && protocol::variable("CLICOLOR") != "0";
  if (!protocol::variable("NO_COLOR").empty()) screen.colour = false;
  if (is_terminal) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
      screen.width = size.ws_col;
      if (size.ws_row > 0) screen.height = size.ws_row;
    } else {
      const int columns = std::atoi(protocol::variable("COLUMNS").c_str());
      screen.width = columns > 0 ? columns : 80;
    }
  }
  return screen;
}

std::string paint(const Screen& screen, Style style, std::string_view text) {
  if (!screen.colour || style == Style::plain || text.empty()) return std::string(text);
  if (screen.weight_only) {
    if (style == Style::dim || style == Style::comment) return std::string(text);
    style = Style::bold;
  }
  const char* code = "";
  switch (style) {
    case Style::plain:
      break;
    case Style::dim:
      code = "2";
      break;
    case Style::bold:
      code = "1";
      break;
    case Style::good:
      code = "32";
      break;
    case Style::note:
      code = "33";
      break;
    case Style::fault:
      code = "1;31";
      break;
    case Style::prompt:
      code = "36";
      break;
    case Style::standard_error:
      code = "31";
      break;
    case Style::selected:
      code = "7";
      break;
    case Style::keyword:
      code = "1;34";
      break;
    case Style::type_name:
    case Style::number:
      code = "36";
      break;
    case Style::string:
      code = "32";
      break;
    case Style::comment:
      code = "2";
      break;
    case Style::directive:
    case Style::magic:
      code = "35";
      break;
    case Style::bracket:
      code = "1;4";
      break;
  }
  return "\033[" + std::string(code) + "m" + std::string(text) + "\033[0m";
}

const Signs& signs(const Screen& screen) {
  static const Signs unicode{"✓", "✗", "•", "■", "▸", "│", "┊", "…", "|Δ|"};
  static const Signs ascii{"ok", "x", "-", "*", ">", "|", "!", "...", "|diff|"};
  return screen.unicode ? unicode : ascii;
}

}  // namespace lockstep::shell
