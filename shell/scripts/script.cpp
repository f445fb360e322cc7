#include "shell/scripts/script.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "protocol/error.h"
#include "protocol/files.h"
#include "protocol/read_json.h"
#include "protocol/whole_number.h"
#include "shell/scripts/cpp_lexer.h"
#include "shell/scripts/python_cell.h"
#include "shell/text/suggest.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

const std::string_view kBlanks = " \t\r\f\v";

/// Magics that change nothing for later cells of a script, or that a script can't run.
constexpr std::array<std::string_view, 12> kLooking = {"save",        "history",     "help",  "who",
                                                       "load",        "load_ext",    "undo",  "detach",
                                                       "dist_status", "collectives", "abort", "interrupt"};

bool is_key_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
}

/// Returns where `KEY=` begins at or after `from`, at the beginning of a word; npos if nowhere.
size_t find_key(std::string_view text, size_t from) {
  for (size_t i = from; i < text.size(); ++i) {
    if (i > 0 && kBlanks.find(text[i - 1]) == std::string_view::npos) continue;
    size_t end = i;
    while (end < text.size() && is_key_character(text[end])) ++end;
    if (end > i && end < text.size() && text[end] == '=' && text.substr(end, 2) != "==") return i;
  }
  return std::string_view::npos;
}

/// Returns the end of a value that begins at `begin`: the first blank outside quotes and brackets.
size_t find_value_end(std::string_view text, size_t begin) {
  int depth = 0;
  bool quoted = false;
  size_t i = begin;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (depth <= 0 && kBlanks.find(c) != std::string_view::npos) {
      break;
    }
  }
  return std::min(i, text.size());
}

enum class Kind { code, markdown, raw };

struct Marker {
  Kind kind = Kind::code;
  ScriptCell cell;
};

void read_pair(std::string_view key, std::string_view value, const std::string& where, Marker& marker) {
  const nlohmann::json json = protocol::read_json(value);
  if (key == "tags") {
    const std::string fix = "; write tags as a list of words in quotes, such as tags=[\"raises-exception\"]";
    if (json.is_discarded()) throw UsageError(where + ": tags=" + std::string(value) + " is not a list" + fix);
    if (!json.is_array()) throw UsageError(where + ": tags=" + std::string(value) + " is not a list" + fix);
    for (const nlohmann::json& tag : json) {
      if (!tag.is_string()) throw UsageError(where + ": the tag " + tag.dump() + " is not a word in quotes" + fix);
      marker.cell.tags.push_back(parse_tag(tag.get<std::string>(), where));
    }
    return;
  }
  if (json.is_discarded())
    throw UsageError(where + ": " + std::string(key) + "=" + std::string(value) +
                     " has no JSON value; write text in quotes, such as " + std::string(key) + "=\"...\"");
  marker.cell.metadata[std::string(key)] = json.is_string() ? json.get<std::string>() : json.dump();
}

/// Is the word in a marker that says what kind of cell it is, and where it stands.
struct KindWord {
  Kind kind;
  size_t begin, end;
};

std::optional<KindWord> find_kind(std::string_view rest, size_t metadata) {
  for (const auto& [word, kind] :
       {std::pair{"[markdown]", Kind::markdown}, {"[md]", Kind::markdown}, {"[raw]", Kind::raw}})
    if (const size_t at = rest.find(word); at < metadata) return KindWord{kind, at, at + std::strlen(word)};
  return std::nullopt;
}

/// `rest` is what follows `// %%`.
Marker parse_marker(std::string_view rest, const std::string& where) {
  Marker marker;
  rest = trimmed(rest);
  size_t metadata = std::min(find_key(rest, 0), rest.size());
  if (const std::optional<KindWord> found = find_kind(rest, metadata)) {
    marker.kind = found->kind;
    marker.cell.title = trimmed(rest.substr(0, found->begin));
    metadata = found->end;
  }
  marker.cell.markdown = marker.kind == Kind::markdown;
  if (marker.kind == Kind::code) marker.cell.title = trimmed(rest.substr(0, metadata));

  for (size_t at = rest.find_first_not_of(kBlanks, metadata); at < rest.size();
       at = rest.find_first_not_of(kBlanks, at)) {
    if (find_key(rest, at) != at)
      throw UsageError(where + ": '" + std::string(rest.substr(at, find_value_end(rest, at) - at)) +
                       "' after the metadata of the cell is no KEY=VALUE; put a title before them, and each value in "
                       "one word or in quotes");
    const size_t equals = rest.find('=', at);
    const size_t end = find_value_end(rest, equals + 1);
    read_pair(rest.substr(at, equals - at), rest.substr(equals + 1, end - equals - 1), where, marker);
    at = end;
  }
  return marker;
}

/// The text of a markdown cell: comment signs taken away, `// ` of each line or one `/* */` around all of them.
std::string uncomment_markdown(const std::vector<std::string>& lines, Language language) {
  const std::string_view sign = language == Language::python ? "#" : "//";
  std::string text;
  for (const std::string& line : lines) {
    std::string_view view = line;
    if (view.starts_with(sign)) {
      view.remove_prefix(sign.size());
      if (view.starts_with(' ')) view.remove_prefix(1);
    }
    text.append(view).push_back('\n');
  }
  const std::string_view all = trimmed(text);
  if (all.substr(0, 2) == "/*" && all.size() >= 4 && all.substr(all.size() - 2) == "*/") {
    const std::string_view inside = all.substr(2, all.size() - 4);
    const size_t first = std::min(inside.find_first_not_of(" \t\n"), inside.size());
    const size_t line = inside.substr(0, first).rfind('\n');  // its indent stays, unless it stands behind the sign
    return std::string(inside.substr(line == std::string_view::npos ? first : line + 1));
  }
  return text;
}

/// Whether these lines are nothing but blanks and comments (a header that no cell needs).
bool only_comments(const std::vector<std::string>& lines, Language language) {
  if (language == Language::python)
    return std::all_of(lines.begin(), lines.end(),
                       [](const std::string& line) { return trimmed(line).empty() || trimmed(line).starts_with('#'); });
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return !has_code(text);
}

/// Fills in text and line of `cell` from the lines that follow its marker; the first of them is line `line` of the
/// file.
void finish(ScriptCell& cell, std::vector<std::string> lines, int line, Language language) {
  while (!lines.empty() && trimmed(lines.back()).empty()) lines.pop_back();
  while (!lines.empty() && trimmed(lines.front()).empty()) {
    lines.erase(lines.begin());
    ++line;
  }
  cell.line = line;
  if (cell.markdown) {
    cell.text = uncomment_markdown(lines, language);
    while (!cell.text.empty() && std::isspace(static_cast<unsigned char>(cell.text.back()))) cell.text.pop_back();
    return;
  }
  for (size_t i = 0; i < lines.size(); ++i) cell.text += (i ? "\n" : "") + lines[i];
}

/// Returns a file's text, with Unix line ends and no byte order mark. Throws UsageError for what is no text.
std::string read_text(const std::string& path) {
  std::string text;
  if (path == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    namespace fs = std::filesystem;
    std::error_code error;
    if (fs::is_directory(path, error))
      throw UsageError(path + ": is a folder; name the session scripts (.cpp) or notebooks (.ipynb) in it");
    if (!fs::exists(path, error)) {
      std::vector<std::string> names;
      const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
      for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        if (entry->path().extension() == ".cpp" || entry->path().extension() == ".ipynb")
          names.push_back(entry->path().filename());
      const std::string hint =
          did_you_mean(fs::path(path).filename().string(), names, folder == "." ? "" : folder.string() + "/");
      throw UsageError(path + ": there is no such file" +
                       (hint.empty() ? "; check the path, seen from " + fs::current_path().string() : hint));
    }
    auto bytes = protocol::read_file(path);
    if (!bytes) throw UsageError(path + ": can't be read (" + std::strerror(errno) + "); check its permissions");
    text = std::move(*bytes);
  }
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    throw UsageError(path + ": is not text (a zero byte at offset " + std::to_string(zero) +
                     "); give a session script (C++ with `// %%` lines) or a notebook (.ipynb)");
  if (const std::optional<size_t> bad = find_invalid_utf8(text)) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(*bad), '\n');
    throw UsageError(path + ":" + std::to_string(line) + ": is not UTF-8 text (offset " + std::to_string(*bad) +
                     "); save it as UTF-8, or give another file if it is not a script");
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  std::erase(text, '\r');
  return text;
}

}  // namespace

std::optional<std::string_view> marker_of(std::string_view line, Language language) {
  const std::string_view marker = language == Language::python ? "# %%" : "// %%";
  if (line.substr(0, marker.size()) != marker) return std::nullopt;
  line.remove_prefix(marker.size());
  if (!line.empty() && kBlanks.find(line.front()) == std::string_view::npos) return std::nullopt;
  return line;
}

bool begins_code(std::string_view rest) {
  rest = trimmed(rest);
  return !find_kind(rest, std::min(find_key(rest, 0), rest.size()));
}

Tag parse_tag(const std::string& text, const std::string& where) {
  const size_t equals = text.find('=');
  Tag tag{text.substr(0, equals), equals == std::string::npos ? "" : text.substr(equals + 1)};
  const std::vector<std::string> known = {"raises-exception", "expects-finding"};
  if (std::find(known.begin(), known.end(), tag.name) == known.end()) {
    // Any word is a fine tag for other tools, but a slip of one of ours would silently not do what it says.
    if (const auto meant = nearest(tag.name, known); meant && edit_distance(tag.name, *meant) <= 3)
      throw UsageError(where + ": unknown tag '" + tag.name + "'; did you mean " + *meant + "?");
    return tag;
  }
  if (tag.name == "raises-exception" && equals != std::string::npos)
    throw UsageError(where + ": the tag raises-exception takes no value; write \"raises-exception\"");
  const size_t colon = tag.value.find(':');
  if (tag.name == "expects-finding" && equals != std::string::npos &&
      (colon == std::string::npos || colon == 0 || colon + 1 == tag.value.size()))
    throw UsageError(where + ": the tag '" + text + "' names no finding; write \"expects-finding\" for any, or " +
                     "\"expects-finding=INSPECTOR:VERDICT\" such as \"expects-finding=verify:mismatch\"");
  return tag;
}

std::vector<ScriptCell> parse_script(std::string_view text, const std::string& name, Language language) {
  std::vector<ScriptCell> cells;
  Marker current;
  std::vector<std::string> lines;
  bool before_first_marker = true;
  int first_line = 1, number = 0;
  const auto close = [&] {
    if (before_first_marker && only_comments(lines, language)) return;
    if (current.kind == Kind::raw) return;
    finish(current.cell, std::move(lines), first_line, language);
    if (!trimmed(current.cell.text).empty()) cells.push_back(std::move(current.cell));
  };
  std::istringstream stream{std::string(text)};
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::optional<std::string_view> marker = marker_of(line, language);
    if (!marker) {
      lines.push_back(std::move(line));
      continue;
    }
    close();
    current = parse_marker(*marker, name + ":" + std::to_string(number));
    lines.clear();
    before_first_marker = false;
    first_line = number + 1;
  }
  close();
  if (cells.empty())
    throw UsageError(name + ": " + (trimmed(text).empty() ? "is empty" : "has no cell") +
                     (language == Language::python ? "; a script of Python cells has lines `# %%` before them"
                                                   : "; a session script holds C++ in cells that begin with a line "
                                                     "`// %%`"));
  return cells;
}

Language language_of_script(const std::string& path) {
  if (path.ends_with(".py")) return Language::python;
  if (!path.ends_with(".ipynb")) return Language::cpp;
  return language_of_notebook(protocol::read_file(path, SIZE_MAX).value_or(""));
}

std::vector<ScriptCell> read_script(const std::string& path, Language language) {
  const std::string text = read_text(path);
  const std::string name = path == "-" ? "<stdin>" : path;
  return path.ends_with(".ipynb") ? parse_notebook(text, name, language) : parse_script(text, name, language);
}

std::vector<ScriptCell> read_cpp_script(const std::string& path) {
  if (path.ends_with(".py"))
    throw UsageError(path + ": its cells are Python, and are not compiled: lockstep run runs them");
  return read_script(path);
}

bool only_looks(const std::string& text) {
  for (const std::string_view name : kLooking) {
    const size_t length = name.size() + 1;
    if (text.starts_with('%') && text.compare(1, name.size(), name) == 0 && text.find('\n') == std::string::npos &&
        (text.size() == length || !std::isalnum(static_cast<unsigned char>(text[length]))))
      return true;
  }
  return !text.empty() && text.back() == '?' && text.find('\n') == std::string::npos;
}

std::string without_looking(const std::string& text, Language language) {
  std::vector<std::string_view> lines = lines_of(text);
  bool is_same = true;
  try {
    const auto& registry = MagicRegistry::instance();
    const bool is_python = language == Language::python && !is_cpp_cell(text);
    const ParsedCell parsed = is_python ? parse_python_cell(text, registry) : parse_cell(text, registry);
    for (const CellPart& part : parsed.parts) {
      if (part.is_code || std::ranges::count(kLooking, part.magic.name) == 0) continue;
      lines.at(static_cast<size_t>(part.magic.line) - 1) = {};
      is_same = false;
    }
  } catch (const UsageError&) {  // reported when it runs
  }
  if (is_same) return text;
  std::string rest = fmt::format("{}", fmt::join(lines, "\n"));
  return trimmed(rest).empty() ? std::string() : rest;
}

std::string shifted_values(const std::vector<ScriptCell>& cells) {
  std::map<int64_t, size_t> numbers;  // new ones by old ones
  for (const ScriptCell& cell : cells)
    if (cell.number > 0) numbers.emplace(cell.number, numbers.size() + 1);
  std::string words;
  for (const ScriptCell& cell : cells) {
    std::set<int64_t> used;
    std::string_view before;
    CppLexer lexer(cell.text);
    while (const auto token = lexer.next()) {
      const bool is_name = token->is_word() && !is_any_of(before, {"::", ".", "->"});
      before = token->text;
      if (!is_name || !before.starts_with('_') || before.starts_with("_0")) continue;
      const auto number = protocol::whole_number(before.substr(1), int64_t{1}, cell.number - 1);
      if (!number || !used.insert(*number).second) continue;
      const auto there = numbers.find(*number);
      if (there == numbers.end())
        words += fmt::format("; cell {} uses _{}, which is not there", numbers[cell.number], *number);
      else if (there->second != static_cast<size_t>(*number))
        words += fmt::format("; cell {} uses _{}, which is _{} there", numbers[cell.number], *number, there->second);
    }
  }
  return words;
}

std::string moved_markers(const std::vector<ScriptCell>& cells, Language language) {
  std::string words;
  int64_t number = 0;
  for (const ScriptCell& cell : cells) {
    number += cell.number > 0 ? 1 : 0;
    const std::vector<std::string_view> lines = lines_of(cell.text);
    const auto line =
        std::ranges::find_if(lines, [&](std::string_view each) { return marker_of(each, language).has_value(); });
    if (cell.markdown || line == lines.end()) continue;
    words += fmt::format("; {} has the line '{}', which would begin a cell and has a blank before it now",
                         cell.number > 0 ? fmt::format("cell {}", number) : "a cell of magics", *line);
  }
  return words;
}

std::string format_script(const std::vector<ScriptCell>& cells, Language language) {
  const std::string sign = language == Language::python ? "#" : "//";
  std::string text;
  for (const ScriptCell& cell : cells) {
    text += (text.empty() ? "" : "\n") + sign + " %%" + (cell.title.empty() ? "" : " " + cell.title);
    if (cell.markdown) text += " [markdown]";
    nlohmann::json tags = nlohmann::json::array();
    for (const Tag& tag : cell.tags) tags.push_back(tag.value.empty() ? tag.name : tag.name + "=" + tag.value);
    if (!tags.empty()) text += " tags=" + tags.dump();
    for (const auto& [key, value] : cell.metadata) {
      const nlohmann::json json = protocol::read_json(value);
      text += " " + key + "=" + (json.is_discarded() ? nlohmann::json(value).dump() : value);
    }
    text += "\n";
    std::istringstream stream{cell.text};
    for (std::string line; std::getline(stream, line);) {
      std::string written = (cell.markdown ? sign + (line.empty() ? "" : " ") : "") + line;
      if (marker_of(written, language))
        written.insert(cell.markdown ? sign.size() : 0, " ");  // not the begin of a cell
      text += written + "\n";
    }
  }
  return text;
}

}  // namespace lockstep::shell
