// Session scripts: Jupytext's percent format for C++, and .ipynb files. Text in, cells out; nothing runs here.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::shell {

/// A tag such as `expects-finding=verify:mismatch`: the part before '=' and what follows.
struct Tag {
  std::string name, value;
};

struct ScriptCell {
  bool markdown = false;
  std::string title;
  std::vector<Tag> tags;
  std::map<std::string, std::string> metadata;   // other key=value pairs of the marker
  std::string text;
  int line = 0;                                  // in the file, of the first line of the text, from 1
};

/// Reads a .cpp (percent format) or .ipynb file. Throws UsageError naming the file, the line and the mend.
std::vector<ScriptCell> read_script(const std::string& path);

/// The percent format alone. `name` is for messages.
std::vector<ScriptCell> parse_script(std::string_view text, const std::string& name);

}  // namespace lockstep::shell
