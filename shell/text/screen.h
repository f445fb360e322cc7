// Says what the place that people look at can show: colours, Unicode, how many columns; and the signs and styles that
// follow from it.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::shell {

struct Screen {
  bool terminal = false;  // lines can be drawn again: progress in place
  bool colour = false;
  bool weight_only = false;  // of the styles with a colour, only bold is used
  bool unicode = false;
  int width = 0;  // columns; 0: no limit, nothing is cut or wrapped
  int height = 24;
};

/// Asks the descriptor and the environment: NO_COLOR, CLICOLOR_FORCE, TERM, COLUMNS, and the locale (LC_ALL, LC_CTYPE,
/// LANG) for Unicode.
Screen detect_screen(int fd);

enum class Style {
  plain,
  dim,
  bold,
  good,
  note,
  fault,
  prompt,
  standard_error,
  selected,
  // of a cell that is being typed
  keyword,
  type_name,
  number,
  string,
  comment,
  directive,
  magic,
  bracket,
};

/// Returns `text` in that style; unchanged where the screen has no colours.
std::string paint(const Screen& screen, Style style, std::string_view text);

/// Has signs in Unicode, or what stands for them in ASCII.
struct Signs {
  const char* good;  // ✓
  const char* fault;  // ✗
  const char* note;  // •
  const char* stopped;  // ■
  const char* prompt;  // ▸
  const char* output;  // │
  const char* error;  // ┊
  const char* dots;  // …
  const char* difference;  // |Δ|
};
const Signs& signs(const Screen& screen);

}  // namespace lockstep::shell
