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

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// What stands before a `//` comment: one at the beginning or behind a blank, outside quotes (an address holds // as
/// well).
std::string_view without_comment(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (const auto literal = literal_at(text, i)) {
      i = literal->end - 1;
    } else if (text.substr(i, 2) == "//" && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t')) {
      return trim(text.substr(0, i));
    }
  }
  return text;
}

struct Found {
  bool cell_magic = false;
  MagicUse use;
};

/// A magic on this line, which begins where a statement may.
std::optional<Found> find_magic(std::string_view raw, int line, const MagicRegistry& registry) {
  std::string_view text = trim(raw);
  const bool commented = text.starts_with("// ");
  if (commented) text = trim(text.substr(3));
  if (!text.starts_with('%')) return std::nullopt;
  Found found;
  text.remove_prefix(1);
  if (text.starts_with('%')) {
    found.cell_magic = true;
    text.remove_prefix(1);
  }
  if (text.empty() || !is_name_start(text.front())) return std::nullopt;
  const auto name_end = std::find_if_not(text.begin(), text.end(), is_name_character);
  const std::string name(text.begin(), name_end);
  const std::string_view rest = without_comment(trim(text.substr(name.size())));
  if (commented && !registry.knows(name)) return std::nullopt;
  found.use = {name, std::string(rest), line};
  if (rest == "?" || rest == "??") {
    found.cell_magic = false;
    found.use = {"help", name, line};
  }
  return found;
}

bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_name_character(text[at - 1])) && (end == text.size() || !is_name_character(text[end])))
      return true;
  }
  return false;
}

/// `!ls -l`, for the shell. C++ negates names and brackets: a name that a cell has defined, or the text in front
/// (`before`).
std::optional<MagicUse> find_command(std::string_view raw, int line, std::string_view before,
                                     const std::function<bool(const std::string&)>& is_name_of_cell) {
  std::string_view text = trim(raw);
  if (!text.starts_with('!')) return std::nullopt;
  text = trim(text.substr(1));
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

/// `expression?`, `expression??` and `?expression`: a name, with members, scopes, calls and subscripts, and nothing else
/// on the line. `?` alone and `help`, unless a cell has defined that name, are %help.
std::optional<MagicUse> find_question(std::string_view raw, int line,
                                      const std::function<bool(const std::string&)>& is_name_of_cell) {
  std::string_view text = without_comment(trim(raw));
  if ((text == "help" || text == "help()") && !(is_name_of_cell && is_name_of_cell("help")))
    return MagicUse{"help", "", line};
  std::string_view sign = "?";
  if (text.starts_with('?')) {
    if (text.starts_with("??")) sign = "??";
    text = trim(text.substr(sign.size()));
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

/// Whether there is anything to compile: other than blanks and comments, of which the last may be open (`open_is_code`:
/// then the compiler says so).
bool has_tokens(const std::vector<std::string_view>& lines, size_t begin, size_t end, bool open_is_code) {
  bool in_comment = false;
  for (size_t k = begin; k < end; ++k) {
    std::string_view line = lines[k];
    while (!line.empty()) {
      if (in_comment) {
        const auto close = line.find("*/");
        if (close == std::string_view::npos) break;
        in_comment = false;
        line.remove_prefix(close + 2);
      } else if (line.starts_with("//")) {
        break;
      } else if (line.starts_with("/*")) {
        in_comment = true;
        line.remove_prefix(2);
      } else if (!std::isspace(static_cast<unsigned char>(line.front()))) {
        return true;
      } else {
        line.remove_prefix(1);
      }
    }
  }
  return in_comment && open_is_code;
}

std::string on_its_lines(const std::vector<std::string_view>& lines, size_t begin, size_t end) {
  std::string text(begin, '\n');
  for (size_t k = begin; k < end; ++k) text.append(lines[k]).append("\n");
  return text;
}

std::string at_line(int line, const std::string& message) { return "line " + std::to_string(line) + ": " + message; }

/// Line of the first that is neither blank, nor comment, nor a cell magic; fills in the cell magics.
size_t take_cell_magics(const std::vector<std::string_view>& lines, const MagicRegistry& registry, ParsedCell& cell) {
  size_t body = 0;
  CodeScanner scanner;
  for (size_t k = 0; k < lines.size(); ++k) {
    if (scanner.at_statement())
      if (const auto found = find_magic(lines[k], static_cast<int>(k) + 1, registry)) {
        if (!found->cell_magic) break;
        const Magic& magic = registry.find(found->use.name, true);
        cell.cell_magics.push_back(found->use);
        body = k + 1;
        if (magic.takes_text) break;
        continue;
      }
    if (has_tokens(lines, k, k + 1, /*open_is_code=*/false) && scanner.at_statement()) break;
    scanner.take(lines[k]);
  }
  return body;
}

}  // namespace

bool ParsedCell::has_code() const {
  return std::any_of(parts.begin(), parts.end(), [](const CellPart& part) { return part.is_code; });
}

ParsedCell parse_cell(std::string_view text, const MagicRegistry& registry,
                      const std::function<bool(const std::string&)>& is_name) {
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    throw UsageError(
        at_line(static_cast<int>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(zero), '\n')) + 1,
                "the text holds zero bytes, so it is no C++: is it a binary file, or UTF-16?"));
  ParsedCell cell;
  const auto lines = split_lines(text);
  const size_t body = take_cell_magics(lines, registry, cell);
  cell.body = on_its_lines(lines, body, lines.size());
  if (!cell.cell_magics.empty() && registry.find(cell.cell_magics.back().name, true).takes_text) {
    cell.body.erase(0, body);  // of text every line counts
    return cell;
  }

  CodeScanner scanner;
  size_t code_begin = body;
  const auto end_code = [&](size_t end) {
    if (has_tokens(lines, code_begin, end, /*open_is_code=*/true))
      cell.parts.push_back({.is_code = true, .code = on_its_lines(lines, code_begin, end), .magic = {}});
  };
  for (size_t k = body; k < lines.size(); ++k) {
    if (scanner.at_statement()) {
      const int line = static_cast<int>(k) + 1;
      std::optional<MagicUse> use;
      if (const auto found = find_magic(lines[k], line, registry)) {
        if (found->cell_magic) {
          (void)registry.find(found->use.name, true);
          throw UsageError(at_line(line, "%%" + found->use.name + " applies to the complete cell: put it first"));
        }
        use = found->use;
      } else if (const auto question = find_question(lines[k], line, is_name); question && registry.knows("?")) {
        use = question;
      } else if (registry.knows("!")) {
        const auto before = text.substr(0, static_cast<size_t>(lines[k].data() - text.data()));
        use = find_command(lines[k], line, before, is_name);
      }
      if (use) {
        try {
          (void)registry.find(use->name, false);
        } catch (const UsageError& error) {
          throw UsageError(at_line(line, error.what()));
        }
        end_code(k);
        code_begin = k + 1;
        cell.parts.push_back({.is_code = false, .code = {}, .magic = *use});
        scanner.end_statement();
        continue;
      }
    }
    scanner.take(lines[k]);
  }
  end_code(lines.size());
  return cell;
}

}  // namespace lockstep::shell
