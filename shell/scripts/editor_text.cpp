#include "shell/scripts/editor_text.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "protocol/error.h"
#include "shell/scripts/magic_parser.h"
#include "shell/scripts/script.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

struct Token {
  std::string_view text;
  size_t begin = 0;
  bool is_word = false;
  size_t end() const { return begin + text.size(); }
};

bool is_any_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The cells of a script: where their text begins and ends.
struct CellRange {
  size_t begin = 0, end = 0;
};

bool is_marker(std::string_view line) {
  return line.starts_with("// %%") && (line.size() == 5 || std::isspace(static_cast<unsigned char>(line[5])));
}

std::vector<CellRange> cells_of(std::string_view text) {
  std::vector<CellRange> cells{{0, text.size()}};
  std::vector<bool> is_code{true};
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (is_marker(line)) {
      cells.back().end = begin;
      cells.push_back({std::min(end + 1, text.size()), text.size()});
      is_code.push_back(begins_code(line.substr(5)));
    }
    begin = end + 1;
  }
  std::vector<CellRange> code;
  for (size_t i = 0; i < cells.size(); ++i)
    if (is_code[i]) code.push_back(cells[i]);
  return code;
}

/// The text with blanks in place of everything but C++.
std::string code_alone(std::string_view text, const std::vector<CellRange>& cells, const MagicRegistry& registry) {
  std::string code(text.size(), ' ');
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') code[i] = '\n';
  for (const CellRange& cell : cells) {
    const std::string_view of_cell = text.substr(cell.begin, cell.end - cell.begin);
    try {
      for (const CellPart& part : parse_cell(of_cell, registry).parts) {
        if (!part.is_code) continue;
        size_t at = cell.begin;  // the part has the cell's lines, blank where it has no code
        for (const std::string_view line : lines_of(part.code)) {
          if (!line.empty()) code.replace(at, line.size(), line);
          at = std::min(text.find('\n', at), text.size() - 1) + 1;
        }
      }
    } catch (const UsageError&) {  // it is being typed: all but the lines that may be magics
      size_t at = cell.begin;
      for (const std::string_view line : lines_of(of_cell)) {
        const size_t first = line.find_first_not_of(" \t");
        if (first != std::string_view::npos && line[first] != '%' && line[first] != '!')
          code.replace(at, line.size(), line);
        at += line.size() + 1;
      }
    }
  }
  return code;
}

size_t past_literal(std::string_view text, size_t i) {
  const char quote = text[i];
  for (++i; i < text.size() && text[i] != quote && text[i] != '\n'; ++i)
    if (text[i] == '\\') ++i;
  return std::min(i + 1, text.size());
}

/// Words, literals and punctuation; #include lines are put into `includes` (offset of the line), other directives are
/// left out.
std::vector<Token> tokens_of(std::string_view text, std::vector<size_t>& includes) {
  std::vector<Token> tokens;
  bool line_start = true;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const auto add = [&](size_t end, bool is_word = false) {
      tokens.push_back({text.substr(i, end - i), i, is_word});
      i = end;
      line_start = false;
    };
    if (c == '\n') {
      line_start = true;
      ++i;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (c == '#' && line_start) {
      if (text.substr(std::min(text.find_first_not_of(" \t", i + 1), text.size())).starts_with("include"))
        includes.push_back(i);
      for (size_t end = text.find('\n', i);; end = text.find('\n', end + 1)) {
        i = std::min(end, text.size());
        if (end == std::string_view::npos || text[end - 1] != '\\') break;
      }
    } else if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.substr(i, 2) == "/*") {
      const size_t end = text.find("*/", i + 2);
      i = end == std::string_view::npos ? text.size() : end + 2;
    } else if (is_name_character(c) && !std::isdigit(static_cast<unsigned char>(c))) {
      size_t end = i;
      while (end < text.size() && is_name_character(text[end])) ++end;
      const std::string_view word = text.substr(i, end - i);
      if (end < text.size() && text[end] == '"' && word.ends_with('R') && word.size() <= 3) {
        const size_t open = text.find('(', end);
        if (open == std::string_view::npos) return tokens;
        const size_t close = text.find(")" + std::string(text.substr(end + 1, open - end - 1)) + "\"", open);
        add(close == std::string_view::npos ? text.size() : close + (open - end) + 1);
      } else {
        add(end, true);
      }
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      size_t end = i;
      while (end < text.size() && (is_name_character(text[end]) || text[end] == '.' ||
                                   (text[end] == '\'' && end + 1 < text.size() && is_name_character(text[end + 1]))))
        ++end;
      add(end);
    } else if (c == '"' || c == '\'') {
      add(past_literal(text, i));
    } else {
      const bool two = text.substr(i, 2) == "::" || text.substr(i, 2) == "->";
      add(i + (two ? 2 : 1));
    }
  }
  return tokens;
}

/// A function: its parameters as text. Otherwise nothing.
struct DefinedName {
  std::string name;
  std::optional<std::string> parameters;
};

/// One item of a cell: tokens [begin, end).
struct Item {
  size_t begin = 0, end = 0;
  bool declares = false;
  bool is_include_like = false;  // a namespace of a library, which stands outside of ours
  std::vector<DefinedName> names;
};

class Items {
 public:
  Items(const std::vector<Token>& tokens, size_t first, size_t last) : tokens_(tokens), at_(first), last_(last) {}

  std::optional<Item> next() {
    if (at_ >= last_) return std::nullopt;
    Item item;
    item.begin = at_;
    item.declares = declares(at_);
    item.end = end_of(at_, item.declares);
    if (item.declares) read_names(item);
    at_ = item.end;
    return item;
  }

 private:
  std::string_view text(size_t i) const { return i < last_ ? tokens_[i].text : std::string_view(); }
  bool is_word(size_t i) const { return i < last_ && tokens_[i].is_word; }

  /// After the bracket that closes the one at `i`.
  size_t after_bracket(size_t i) const {
    int depth = 0;
    for (; i < last_; ++i) {
      if (is_any_of(text(i), {"(", "[", "{"})) ++depth;
      if (is_any_of(text(i), {")", "]", "}"}) && --depth == 0) return i + 1;
    }
    return last_;
  }

  /// After the `>` that closes the `<` at `i`; `i` if these are no template arguments.
  size_t after_angle(size_t i) const {
    int depth = 0;
    for (size_t k = i; k < last_; ++k) {
      if (is_any_of(text(k), {"(", "[", "{"})) {
        k = after_bracket(k) - 1;
      } else if (text(k) == "<") {
        ++depth;
      } else if (text(k) == ">") {
        if (--depth == 0) return k + 1;
      } else if (is_any_of(text(k), {";", ")", "]", "}"})) {
        break;
      }
    }
    return i;
  }

  /// After a name such as ::a::b<c>::d; `i` if there is none. `last_name`: the index of its last word.
  size_t after_name(size_t i, size_t* last_name = nullptr) const {
    size_t k = i;
    if (text(k) == "::") ++k;
    for (;;) {
      if (text(k) == "template" || text(k) == "typename") ++k;
      if (!is_word(k)) return i;
      if (last_name) *last_name = k;
      ++k;
      if (text(k) == "<") k = after_angle(k);
      if (text(k) != "::" || !is_word(k + 1)) return k;
      ++k;
    }
  }

  static bool is_type_word(std::string_view word) {
    return is_any_of(word, {"unsigned", "signed", "long", "short", "int", "char", "bool", "float", "double", "void",
                            "wchar_t", "char8_t", "char16_t", "char32_t", "size_t"});
  }
  static bool is_specifier(std::string_view word) {
    return is_any_of(word, {"const", "constexpr", "consteval", "constinit", "static", "inline", "thread_local",
                            "volatile", "mutable", "register", "auto", "friend"});
  }

  /// Macros of LibTorch that declare something, and look like calls.
  static bool is_declaring_macro(std::string_view word) {
    return word.starts_with("TORCH_MODULE") || word.starts_with("TORCH_LIBRARY") || word.starts_with("C10_DE");
  }

  /// After the type at `i` with its `const`, `*` and `&`; `i` if there is none.
  size_t after_type(size_t i) const {
    size_t k = i;
    bool has_type = false;
    for (;; ++k) {
      if (is_any_of(text(k), {"auto"}) || is_type_word(text(k)))
        has_type = true;
      else if (!is_specifier(text(k)))
        break;
    }
    if (text(k) == "decltype") {
      k = after_bracket(k + 1);
      has_type = true;
    }
    if (text(k) == "typename") ++k;
    if (!has_type && is_any_of(text(k), {"struct", "class", "enum", "union"})) ++k;
    if (!has_type) {
      const size_t after = after_name(k);
      if (after == k) return i;
      k = after;
    }
    while (is_any_of(text(k), {"*", "&", "const", "volatile"})) ++k;
    return k;
  }

  bool declares(size_t i) const {
    const std::string_view first = text(i);
    if (is_any_of(first, {"struct", "class", "union", "enum", "template", "using", "namespace", "typedef", "extern",
                          "static_assert", "concept", "asm"}) ||
        is_specifier(first))
      return true;
    if (first == "[" && text(i + 1) == "[") return true;
    if (is_declaring_macro(first)) return true;
    if (!is_word(i) && first != "::") return false;
    if (is_any_of(first, {"if",
                          "for",
                          "while",
                          "do",
                          "switch",
                          "try",
                          "else",
                          "catch",
                          "case",
                          "default",
                          "return",
                          "throw",
                          "delete",
                          "new",
                          "this",
                          "sizeof",
                          "break",
                          "continue",
                          "goto",
                          "true",
                          "false",
                          "nullptr",
                          "co_await",
                          "co_return",
                          "co_yield",
                          "not",
                          "alignof",
                          "typeid",
                          "static_cast",
                          "dynamic_cast",
                          "reinterpret_cast",
                          "const_cast",
                          "operator"}))
      return false;
    size_t last_name = i;
    const size_t name_end = after_name(i, &last_name);
    // Net::Net() {}, Net::~Net() {}
    if (text(name_end) == "(" && last_name > i + 1 && text(last_name - 1) == "::" &&
        text(last_name) == text(last_name - 2))
      return true;
    if (text(name_end) == "::" && text(name_end + 1) == "~") return true;
    const size_t after = after_type(i);
    if (after == i || !is_word(after)) return false;
    return !is_any_of(text(after), {"and", "or", "xor", "not_eq", "bitand", "bitor"});
  }

  size_t end_of(size_t i, bool declares) const {
    size_t k = i;
    const std::string_view first = text(i);
    if (first == "template" && text(i + 1) == "<") k = after_angle(i + 1);
    const bool has_class_key = is_any_of(text(k), {"struct", "class", "union", "enum", "typedef"});
    const bool is_control =
        !declares && is_any_of(first, {"if", "for", "while", "do", "switch", "try", "else", "catch"});
    const bool is_block =
        is_any_of(first, {"namespace", "extern"}) || (first == "inline" && text(i + 1) == "namespace");
    if (!declares && first == "{") return after_bracket(i);
    bool has_value = false, has_result = false;  // `=` and `->`
    for (; k < last_; ++k) {
      if (text(k) == ";") return k + 1;
      has_value |= text(k) == "=";
      has_result |= text(k) == "->";
      if (is_any_of(text(k), {"(", "["})) {
        k = after_bracket(k) - 1;
      } else if (text(k) == "{") {
        const std::string_view before = k > i ? text(k - 1) : std::string_view();
        const bool is_body = declares && !has_class_key && !has_value &&
                             (has_result || is_any_of(before, {")", "}", "const", "noexcept", "override"}));
        k = after_bracket(k) - 1;
        if (is_control || is_body || is_block) return k + 1;
        if (has_class_key) continue;
        const std::string_view next = text(k + 1);
        if (!next.empty() && is_any_of(next, {";", ",", ".", ")", "->", "+", "-", "/", "<", ">", "=", "?", ":", "|",
                                              "[", "(", "{", "%"}))
          continue;
        return k + 1;
      } else if (is_any_of(text(k), {")", "]", "}"})) {
        continue;  // what does not compile
      }
    }
    return last_;
  }

  void read_names(Item& item) const {
    size_t k = item.begin;
    const auto add = [&](std::string_view name) { item.names.push_back({std::string(name), std::nullopt}); };
    if (text(k) == "template") k = after_angle(k + 1);
    if (text(k) == "requires") return;
    if (is_declaring_macro(text(k))) return add(text(k + 2));
    if (text(k) == "using") {
      if (is_word(k + 1) && text(k + 2) == "=") add(text(k + 1));
      return;
    }
    if (text(k) == "concept") return add(text(k + 1));
    if (text(k) == "namespace") {
      item.is_include_like = is_any_of(text(k + 1), {"std", "torch", "at", "c10", "c10d", "lockstep", "dist", "ddp"}) &&
                             text(k + 2) != "=";
      if (text(k + 2) == "=") add(text(k + 1));
      return;
    }
    if (text(k) == "typedef") {
      if (item.end >= 2 && is_word(item.end - 2)) add(text(item.end - 2));
      return;
    }
    if (is_any_of(text(k), {"struct", "class", "union", "enum"})) {
      const bool is_std = text(k + 1) == "std" && text(k + 2) == "::";
      if (is_std) item.is_include_like = true;
      size_t name = k + 1;
      if (is_any_of(text(name), {"struct", "class"})) ++name;
      while (text(name) == "[") name = after_bracket(name);
      if (is_word(name) && is_any_of(text(name + 1), {"{", ":", "final"})) return add(text(name));
      if (text(name + 1) == ";" || text(name + 1) == "<" || text(name + 1) == "::") return;
    }
    size_t at = after_type(k);
    if (text(at) == "[") {  // auto [a, b] = …
      for (size_t i = at + 1; i < item.end && text(i) != "]"; ++i)
        if (is_word(i)) add(text(i));
      return;
    }
    if (!is_word(at) || text(at) == "operator" || text(at + 1) == "::") return;
    if (text(at + 1) == "(" && text(item.end - 1) == "}") {
      std::string parameters;
      for (size_t i = at + 1, end = after_bracket(at + 1); i < end; ++i) parameters += std::string(text(i)) + " ";
      item.names.push_back({std::string(text(at)), parameters});
      return;
    }
    add(text(at));
    for (size_t i = at + 1; i < item.end; ++i) {  // int a = 1, b = 2;
      if (is_any_of(text(i), {"(", "[", "{"})) i = after_bracket(i) - 1;
      if (text(i) == "<" && after_angle(i) != i) i = after_angle(i) - 1;
      if (text(i) != ",") continue;
      size_t name = i + 1;
      while (is_any_of(text(name), {"*", "&"})) ++name;
      if (is_word(name)) add(text(name));
    }
  }

  const std::vector<Token>& tokens_;
  size_t at_, last_;
};

int utf16_units(std::string_view text) {
  int units = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) != 0x80) units += byte >= 0xf0 ? 2 : 1;
  }
  return units;
}

}  // namespace

bool is_session_script(std::string_view text) {
  for (const std::string_view line : lines_of(text))
    if (is_marker(line)) return true;
  return false;
}

EditorText::EditorText(std::string_view script, const MagicRegistry& registry) {
  const std::vector<CellRange> cells = cells_of(script);
  std::string code = code_alone(script, cells, registry);
  std::vector<size_t> includes;
  const std::vector<Token> tokens = tokens_of(code, includes);

  std::map<size_t, std::pair<std::string, bool>> inserted;  // before the byte; whether it opens what follows
  const auto insert = [&](size_t at, const std::string& text, bool opens = false) {
    inserted[at].first += text;
    inserted[at].second |= opens;
  };
  const auto insert_before = [&](size_t at, const std::string& text) { insert(at, text, /*opens=*/true); };
  int spaces = 0, functions = 0;
  const auto open_space = [](int i) { return "namespace lockstep_script_" + std::to_string(i) + " { "; };
  const auto all_spaces = [&](bool open) {
    std::string text;
    for (int i = 0; i <= spaces; ++i) text += open ? open_space(i) : "}";
    return text;
  };
  struct Known {
    std::optional<std::string> parameters;
    int space;  // its namespace
  };
  std::multimap<std::string, Known> known;
  const auto is_defined = [&](const DefinedName& name) {
    const auto [begin, end] = known.equal_range(name.name);
    return std::any_of(begin, end, [&](const auto& each) {
      return !each.second.parameters || !name.parameters || each.second.parameters == name.parameters;
    });
  };
  // An overload does not hide those of the namespaces around it.
  const auto overloads = [&](const DefinedName& name) {
    std::string text;
    std::set<int> outer;
    const auto [begin, end] = known.equal_range(name.name);
    for (auto each = begin; each != end; ++each)
      if (name.parameters && each->second.space < spaces) outer.insert(each->second.space);
    if (!outer.empty()) {  // those of the innermost one, which has the others
      text = "using ";
      for (int i = 0; i <= *outer.rbegin(); ++i) text += "lockstep_script_" + std::to_string(i) + "::";
      text += name.name + "; ";
    }
    return text;
  };
  size_t token = 0;
  for (const CellRange& cell : cells) {
    const size_t first = token;
    while (token < tokens.size() && tokens[token].begin < cell.end) ++token;
    Items items(tokens, first, token);
    bool in_function = false;
    while (const auto item = items.next()) {
      const size_t begin = tokens[item->begin].begin, end = tokens[item->end - 1].end();
      if (!item->declares) {
        if (!in_function) insert_before(begin, "void lockstep_statements_" + std::to_string(++functions) + "() { ");
        in_function = true;
        continue;
      }
      if (std::exchange(in_function, false)) insert(tokens[item->begin - 1].end(), " ;}");
      if (item->is_include_like) {
        insert_before(begin, all_spaces(false) + " ");
        insert(end, " " + all_spaces(true));
        continue;
      }
      if (std::any_of(item->names.begin(), item->names.end(), is_defined))
        insert_before(begin, open_space(++spaces));
      else
        for (const DefinedName& name : item->names) insert_before(begin, overloads(name));
      for (const DefinedName& name : item->names) known.emplace(name.name, Known{name.parameters, spaces});
      // Clang refuses a lambda that captures by default outside of a function. Names of cells need no capture.
      int braces = 0;
      for (size_t i = item->begin; i + 2 < item->end; ++i) {
        if (tokens[i].text == "{") ++braces;
        if (tokens[i].text == "}") --braces;
        if (braces > 0 || tokens[i].text != "[" || !is_any_of(tokens[i + 1].text, {"&", "="})) continue;
        if (tokens[i + 2].text == "]" || tokens[i + 2].text == ",") code[tokens[i + 1].begin] = ' ';
        if (tokens[i + 2].text == ",") code[tokens[i + 2].begin] = ' ';
      }
    }
    if (in_function) insert(tokens[token - 1].end(), " ;}");
    // The value of a last expression and an item that is being typed end with their cell.
  }

  // Line by line, with the insertions and where they are.
  std::vector<std::string> include_lines;
  for (const size_t at : includes) {
    const size_t end = std::min(code.find('\n', at), code.size());
    include_lines.push_back(code.substr(at, end - at));
    included_at_.push_back(static_cast<int>(std::count(code.begin(), code.begin() + static_cast<ptrdiff_t>(at), '\n')));
  }
  for (const std::string& line : include_lines) text_ += line + "\n";
  text_ += open_space(0) + "\n";
  included_at_.push_back(0);
  int line = 0;
  size_t line_begin = 0, done = 0;
  const auto copy_to = [&](size_t end) {
    for (; done < end; ++done) {
      text_ += code[done];
      if (code[done] != '\n') continue;
      ++line;
      line_begin = done + 1;
    }
  };
  for (const auto& [at, insertion] : inserted) {
    const auto& [text, opens] = insertion;
    copy_to(at);
    text_ += text;
    insertions_[line].push_back({utf16_units(std::string_view(code).substr(line_begin, at - line_begin)),
                                 static_cast<int>(text.size()), opens});
  }
  copy_to(code.size());
  text_ += "\n" + all_spaces(false) + "\n";
}

EditorPosition EditorText::to_file(EditorPosition in_script) const {
  EditorPosition result{in_script.line + static_cast<int>(included_at_.size()), in_script.character};
  if (const auto found = insertions_.find(in_script.line); found != insertions_.end())
    for (const Insertion& each : found->second)
      if (each.character < in_script.character || (each.character == in_script.character && each.opens))
        result.character += each.length;
  return result;
}

EditorPosition EditorText::to_script(EditorPosition in_file) const {
  const int before = static_cast<int>(included_at_.size());
  if (in_file.line < before) return {included_at_[static_cast<size_t>(std::max(in_file.line, 0))], 0};
  EditorPosition result{in_file.line - before, in_file.character};
  if (const auto found = insertions_.find(result.line); found != insertions_.end())
    for (const Insertion& each : found->second) {
      if (result.character <= each.character) break;
      result.character = std::max(each.character, result.character - each.length);
    }
  return result;
}

}  // namespace lockstep::shell
