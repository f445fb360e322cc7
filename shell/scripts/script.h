// Session scripts: Jupytext's percent format for C++ (for Python: `# %%`), and .ipynb files. Text in, cells out; nothing
// runs here.
//
// A line `// %%` (then white space or its end) begins a cell: `// %% TITLE [markdown] KEY=JSON ...`. Errors are
// UsageErrors: "FILE:LINE: what; how to fix it". Magics in cells are read later, also those
// after `// `: magic_parser.h.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shell/scripts/language.h"

namespace lockstep::shell {

/// A tag such as `expects-finding=verify:mismatch`: the part before '=' and what follows.
struct Tag {
  std::string name, value;
};

struct ScriptCell {
  bool markdown = false;
  std::string title;
  std::vector<Tag> tags;
  std::map<std::string, std::string> metadata;  // other key=value pairs of the marker
  std::string text;
  int line = 0;  // in the file, of the first line of the text, from 1; 0 in a notebook
  int64_t number = 0;  // that it has to get, or had in its session; 0: the next, or none
  int notebook_cell = -1;  // index among the cells of a notebook, from 0; -1 in a script
};

/// Returns what follows `// %%`, or `# %%`, where `line` is the marker of a cell.
std::optional<std::string_view> marker_of(std::string_view line, Language language);

/// Whether the cell that begins with the marker `// %%` and `rest` is C++. Of a line that is still being typed, too.
bool begins_code(std::string_view rest);

/// Returns the language of a file: Python of .py, and of a notebook whose kernel is one of Python; C++ of everything else,
/// also where it can't be read.
Language language_of_script(const std::string& path);

/// Reads a .cpp or .py (percent format of `language`) or .ipynb file; `-` is the standard input. Throws UsageError that
/// names the file and the line and says how to fix it.
std::vector<ScriptCell> read_script(const std::string& path, Language language = Language::cpp);

/// Reads as read_script does, for commands that compile cells. Throws UsageError for a script of Python, too.
std::vector<ScriptCell> read_cpp_script(const std::string& path);

/// Reads the percent format alone. `name` is for messages.
std::vector<ScriptCell> parse_script(std::string_view text, const std::string& name, Language language = Language::cpp);

/// Returns the cells of a notebook (nbformat 4), raw cells left out. `name` is for messages. Throws UsageError for a
/// notebook of another language, too.
std::vector<ScriptCell> parse_notebook(std::string_view text, const std::string& name,
                                       Language language = Language::cpp);

/// Returns that of its kernel: C++ where it names none.
Language language_of_notebook(std::string_view text);

/// Returns the percent format of these cells, which parse_script reads back. A line that would begin a cell gets a blank
/// before it.
std::string format_script(const std::vector<ScriptCell>& cells, Language language = Language::cpp);

/// Whether a cell only looks and would say something else when a script runs, is %load, whose cells stand after it, or
/// concerns the terminal, as %detach does.
bool only_looks(const std::string& text);

/// Returns the text of a cell that has ended well as it runs again: the lines of such magics are blank. Empty where nothing
/// else is in it.
std::string without_looking(const std::string& text, Language language);

/// Says, after "; " each, which of these cells of a session use a value by its number (_7) that is another one where they
/// run one after the other.
std::string shifted_values(const std::vector<ScriptCell>& cells);

/// Says, after "; " each, which cells format_script() changes so that parse_script() reads as many.
std::string moved_markers(const std::vector<ScriptCell>& cells, Language language = Language::cpp);

/// The tag of a cell that has failed when it ran before: it may fail again. Its value is how.
inline constexpr std::string_view kFailedBefore = "failed before";

/// Takes "raises-exception" or "expects-finding=verify:mismatch" apart. `where` is for messages. Throws UsageError for
/// a slip of one of the tags that mean something here; all others are the user's own.
Tag parse_tag(const std::string& text, const std::string& where);

}  // namespace lockstep::shell
