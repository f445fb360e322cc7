#include "shell/scripts/magic_parser.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "protocol/error.h"
#include "shell/scripts/code_scanner.h"
#include "shell/scripts/literals.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }

/// Returns what stands before a `//` comment: one at the beginning or behind a blank, outside quotes (an address holds // as
/// well).
std::string_view without_comment(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (const auto literal = literal_at(text, i)) {
      i = literal->end - 1;
    } else if (text.substr(i, 2) == "//" && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t')) {
      return trimmed(text.substr(0, i));
    }
  }
  return text;
}

/// A magic on this line, which begins where a statement may.
std::optional<FoundMagic> find_magic(std::string_view raw, int line, const MagicRegistry& registry) {
  std::string_view text = trimmed(raw);
  const bool commented = text.starts_with("// ");
  if (commented) text = trimmed(text.substr(3));
  const std::string_view magic = magic_of(text);
  const size_t signs = magic.find_first_not_of('%');
  if (signs == std::string_view::npos || signs > 2 || !is_name_start(magic[signs])) return std::nullopt;
  const std::string name(magic.substr(signs));
  const std::string_view rest = without_comment(trimmed(text.substr(magic.size())));
  if (commented && !registry.knows(name)) return std::nullopt;
  FoundMagic found{.cell_magic = signs == 2, .use = {name, std::string(rest), line}};
  if (rest == "?" || rest == "??") {
    found.cell_magic = false;
    found.use = {"help", name, line};
  }
  return found;
}

/// `!ls -l`, for the shell. C++ negates names and brackets: a name that a cell has defined, or the text in front
/// (`before`).
std::optional<MagicUse> find_command(std::string_view raw, int line, std::string_view before,
                                     const std::function<bool(const std::string&)>& is_name_of_cell) {
  std::string_view text = trimmed(raw);
  if (!text.starts_with('!')) return std::nullopt;
  text = trimmed(text.substr(1));
  if (text.empty() ||
      !(is_name_character(text.front()) || std::string_view("./~$").find(text.front()) != std::string_view::npos))
    return std::nullopt;
  if (text.ends_with("&&") || text.ends_with("||") || text.ends_with(',')) return std::nullopt;
  const std::string word(text.begin(), std::find_if_not(text.begin(), text.end(), is_name_character));
  for (const char* known : {"rank", "world_size", "local_rank", "node_rank", "gpu_id", "device", "get", "arg", "std",
                            "torch", "at", "c10", "dist", "ddp", "inspect", "true", "false", "this", "sizeof"})
    if (word == known) return std::nullopt;
  if (!word.empty() && (has_word(before, word) || (is_name_of_cell && is_name_of_cell(word)))) return std::nullopt;
  return MagicUse{"!", std::string(text), line};
}

/// Finds `expression?`, `expression??` and `?expression`: a name, with members, scopes, calls and subscripts, and
/// nothing else on the line. `?` alone and `help`, unless a cell has defined that name, are %help.
std::optional<MagicUse> find_question(std::string_view raw, int line,
                                      const std::function<bool(const std::string&)>& is_name_of_cell) {
  std::string_view text = without_comment(trimmed(raw));
  if ((text == "help" || text == "help()") && !(is_name_of_cell && is_name_of_cell("help")))
    return MagicUse{"help", "", line};
  std::string_view sign = "?";
  if (text.starts_with('?')) {
    if (text.starts_with("??")) sign = "??";
    text = trimmed(text.substr(sign.size()));
    if (text.empty()) return MagicUse{"help", "", line};
  } else if (text.ends_with('?')) {
    if (text.ends_with("??")) sign = "??";
    text.remove_suffix(sign.size());
  } else {
    return std::nullopt;
  }
  if (text.starts_with('%')) {
    text.remove_prefix(std::min(text.find_first_not_of('%'), text.size()));
    return MagicUse{"help", std::string(text), line};
  }
  if (text.empty() || !(is_name_start(text.front()) || text.front() == ':')) return std::nullopt;
  if (!std::all_of(text.begin(), text.end(), [](char c) {
        return is_name_character(c) || std::string_view(":.->()[]<>,").find(c) != std::string_view::npos;
      }))
    return std::nullopt;
  return MagicUse{std::string(sign), std::string(text), line};
}

std::string on_its_lines(const std::vector<std::string_view>& lines, size_t begin, size_t end) {
  std::string text(begin, '\n');
  for (size_t k = begin; k < end; ++k) text.append(lines[k]).append("\n");
  return text;
}

std::string at_line(int line, const std::string& message) { return "line " + std::to_string(line) + ": " + message; }

}  // namespace

std::string_view magic_of(std::string_view line) {
  line = trimmed(line);
  if (!line.starts_with('%')) return {};
  const auto name = std::find_if(line.begin(), line.end(), [](char c) { return c != '%'; });
  return {line.begin(), std::find_if_not(name, line.end(), is_name_character)};
}

std::pair<std::string, std::string> split_spec(const std::string& arguments) {
  int depth = 0;
  size_t end = 0;
  for (; end < arguments.size(); ++end) {
    if (arguments[end] == '[') ++depth;
    if (arguments[end] == ']') --depth;
    if (depth <= 0 && (arguments[end] == ' ' || arguments[end] == '\t')) break;
  }
  return {arguments.substr(0, end), std::string(trimmed(std::string_view(arguments).substr(end)))};
}

bool ParsedCell::has_code() const {
  return std::any_of(parts.begin(), parts.end(), [](const CellPart& part) { return part.is_code; });
}

ParsedCell take_apart(std::string_view text, const MagicRegistry& registry, const CellGrammar& grammar) {
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw UsageError(
        at_line(static_cast<int>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(zero), '\n')) + 1,
                "the text holds zero bytes, so it is no code: is it a binary file, or UTF-16?"));
  ParsedCell cell;
  const auto lines = lines_of(text);
  size_t body = 0, code_begin = 0;  // lines
  const auto has_code = [&](size_t begin, size_t end) {
    if (begin == end) return false;
    const size_t from = offset_of(lines[begin], text);
    return grammar.has_code(text.substr(from, offset_of(lines[end - 1], text) + lines[end - 1].size() - from));
  };
  const auto end_code = [&](size_t end) {
    if (has_code(code_begin, end))
      cell.parts.push_back({.is_code = true, .code = on_its_lines(lines, code_begin, end), .magic = {}});
  };
  for (size_t k = 0; k < lines.size(); ++k) {
    const size_t begin = offset_of(lines[k], text);
    const int line = static_cast<int>(k) + 1;
    const std::optional<FoundMagic> found =
        grammar.may_begin(begin) ? grammar.find(lines[k], line) : std::optional<FoundMagic>();
    if (!found) continue;
    grammar.skip_magic(begin + lines[k].size());
    if (found->cell_magic) {
      const Magic& magic = registry.find(found->use.name, true);
      if (!cell.parts.empty() || has_code(body, k))
        throw UsageError(at_line(line, "%%" + found->use.name + " applies to the complete cell: put it first"));
      cell.cell_magics.push_back(found->use);
      body = k + 1;
      if (magic.takes_text) {
        cell.body = on_its_lines(lines, body, lines.size()).substr(body);  // of text every line counts
        return cell;
      }
    } else {
      try {
        (void)registry.find(found->use.name, false);
      } catch (const UsageError& error) {
        throw UsageError(at_line(line, error.what()));
      }
      end_code(k);
      cell.parts.push_back({.is_code = false, .code = {}, .magic = found->use});
    }
    code_begin = k + 1;
  }
  end_code(lines.size());
  cell.body = on_its_lines(lines, body, lines.size());
  return cell;
}

ParsedCell parse_cell(std::string_view text, const MagicRegistry& registry,
                      const std::function<bool(const std::string&)>& is_name) {
  CodeScanner scanner(text);
  const auto find = [&](std::string_view line, int number) -> std::optional<FoundMagic> {
    if (auto found = find_magic(line, number, registry)) return found;
    std::optional<MagicUse> use;
    if (registry.knows("?")) use = find_question(line, number, is_name);
    if (!use && registry.knows("!")) use = find_command(line, number, text.substr(0, offset_of(line, text)), is_name);
    return use ? std::optional(FoundMagic{.cell_magic = false, .use = *use}) : std::nullopt;
  };
  return take_apart(text, registry,
                    {.may_begin = [&](size_t line) { return scanner.may_begin(line); },
                     .skip_magic = [&](size_t end) { scanner.skip_magic(end); },
                     .has_code = has_code,
                     .find = find});
}

}  // namespace lockstep::shell
