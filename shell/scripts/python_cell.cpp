#include "shell/scripts/python_cell.h"

#include <algorithm>
#include <array>
#include <optional>

#include "protocol/error.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr std::array<std::string_view, 5> kPdbWords = {"continue", "where", "up", "down", "detach"};

std::string_view trimmed_all(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// What of Python's tokens decides where a statement begins: strings, brackets, comments, lines that are joined.
class Scanner {
 public:
  /// Whether the next line may begin a statement.
  bool at_statement() const { return quote_.empty() && depth_ == 0 && !joined_; }
  bool in_string() const { return !quote_.empty(); }
  int depth() const { return depth_; }
  bool joined() const { return joined_; }

  void take(std::string_view line) {
    joined_ = false;
    for (size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (!quote_.empty()) {
        if (c == '\\') {
          ++i;
        } else if (line.substr(i).starts_with(quote_)) {
          i += quote_.size() - 1;
          quote_.clear();
        }
      } else if (c == '#') {
        break;
      } else if (c == '"' || c == '\'') {
        const std::string three(3, c);
        quote_ = line.substr(i).starts_with(three) ? three : std::string(1, c);
        i += quote_.size() - 1;
      } else if (c == '(' || c == '[' || c == '{') {
        ++depth_;
      } else if (c == ')' || c == ']' || c == '}') {
        depth_ = std::max(0, depth_ - 1);
      } else if (c == '\\' && i + 1 == line.size()) {
        joined_ = true;
      }
    }
    if (quote_.size() == 1 && !line.ends_with('\\')) quote_.clear();  // an error, which Python reports
  }

 private:
  std::string quote_;  // of the string that is open; empty: none
  int depth_ = 0;
  bool joined_ = false;
};

bool is_comment(std::string_view line) {
  const std::string_view text = trimmed_all(line);
  return text.empty() || text.starts_with('#');
}

std::string_view name_at(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && is_name_character(text[end])) ++end;
  return text.substr(0, end);
}

std::optional<MagicUse> find_line_magic(std::string_view line, int number, const MagicRegistry& registry) {
  std::string_view text = trimmed_all(line);
  if (text.starts_with("# %") && registry.knows(name_at(text.substr(3)))) text.remove_prefix(2);
  if (line.empty() || line.front() == ' ' || line.front() == '\t') return std::nullopt;
  if (text.starts_with('%')) {
    const std::string_view name = name_at(text.substr(1));
    if (name.empty()) return std::nullopt;
    const std::string_view rest = trimmed_all(text.substr(1 + name.size()));
    if (rest == "?" || rest == "??") return MagicUse{"help", std::string(name), number};
    return MagicUse{std::string(name), std::string(rest), number};
  }
  if (text.starts_with('!') && text.size() > 1) return MagicUse{"!", std::string(trimmed_all(text.substr(1))), number};
  if (text == "continue") return MagicUse{"continue", "", number};  // outside a loop it is no Python
  if (text == "?") return MagicUse{"help", "", number};
  if (!text.ends_with('?')) return std::nullopt;
  std::string_view expression = text;
  while (expression.ends_with('?')) expression.remove_suffix(1);
  const bool is_name = !expression.empty() && std::all_of(expression.begin(), expression.end(), [](char c) {
    return is_name_character(c) || std::string_view(".[]'\"").find(c) != std::string_view::npos;
  });
  if (!is_name) return std::nullopt;
  return MagicUse{text.ends_with("??") ? "??" : "?", std::string(expression), number};
}

std::string in_line(int line, const std::string& message) { return "line " + std::to_string(line) + ": " + message; }

}  // namespace

bool is_cpp_cell(std::string_view text) {
  for (const std::string_view line : lines_of(text)) {
    const std::string_view word = trimmed_all(line);
    if (word.starts_with("%%")) {
      if (name_at(word.substr(2)) == "cpp") return true;
    } else if (!is_comment(line)) {
      return false;
    }
  }
  return false;
}

ParsedCell parse_python_cell(std::string_view text, const MagicRegistry& registry) {
  if (text.find('\0') != std::string_view::npos) throw UsageError("the text holds zero bytes, so it is no Python");
  ParsedCell cell;
  const std::vector<std::string_view> lines = lines_of(text);
  const auto first = std::find_if_not(lines.begin(), lines.end(), is_comment);
  const std::string_view words =
      first == lines.end() ? "" : trimmed_all(text.substr(static_cast<size_t>(first->data() - text.data())));
  const std::string_view word = name_at(words);
  const std::string_view count = trimmed_all(words.substr(word.size()));
  const bool takes_count = word == "up" || word == "down";
  if (std::find(kPdbWords.begin(), kPdbWords.end(), word) != kPdbWords.end() &&
      (count.empty() || (takes_count && count.find_first_not_of("0123456789") == std::string_view::npos))) {
    const int line = static_cast<int>(first - lines.begin()) + 1;
    cell.parts.push_back({.is_code = false, .code = {}, .magic = {std::string(word), std::string(count), line}});
    return cell;
  }

  size_t body = 0;  // after the last cell magic
  for (size_t k = 0; k < lines.size(); ++k) {
    const std::string_view line = trimmed_all(lines[k]);
    if (is_comment(lines[k])) continue;
    if (!line.starts_with("%%")) break;
    const std::string_view name = name_at(line.substr(2));
    const Magic& magic = registry.find(name, true);
    cell.cell_magics.push_back(
        {std::string(name), std::string(trimmed_all(line.substr(2 + name.size()))), static_cast<int>(k) + 1});
    body = k + 1;
    if (magic.takes_text) break;
  }
  const auto on_its_lines = [&](size_t begin, size_t end) {
    std::string code(begin, '\n');
    for (size_t k = begin; k < end; ++k) code.append(lines[k]).append("\n");
    return code;
  };
  cell.body = on_its_lines(body, lines.size());
  if (!cell.cell_magics.empty() && registry.find(cell.cell_magics.back().name, true).takes_text) {
    cell.body.erase(0, body);
    return cell;
  }
  Scanner scanner;
  size_t code_begin = body;
  const auto end_code = [&](size_t end) {
    const bool is_empty = std::all_of(lines.begin() + static_cast<ptrdiff_t>(code_begin),
                                      lines.begin() + static_cast<ptrdiff_t>(end), is_comment);
    if (!is_empty) cell.parts.push_back({.is_code = true, .code = on_its_lines(code_begin, end), .magic = {}});
  };
  for (size_t k = body; k < lines.size(); ++k) {
    if (scanner.at_statement()) {
      const int number = static_cast<int>(k) + 1;
      if (lines[k].starts_with("%%"))
        throw UsageError(in_line(number, std::string(lines[k]) + " applies to the complete cell: put it first"));
      if (const auto use = find_line_magic(lines[k], number, registry)) {
        try {
          (void)registry.find(use->name, false);
        } catch (const UsageError& error) {
          throw UsageError(in_line(number, error.what()));
        }
        end_code(k);
        code_begin = k + 1;
        cell.parts.push_back({.is_code = false, .code = {}, .magic = *use});
        continue;
      }
    }
    scanner.take(lines[k]);
  }
  end_code(lines.size());
  return cell;
}

protocol::Completeness scan_python_completeness(std::string_view text) {
  Scanner scanner;
  std::string_view last;
  bool in_block = false;
  for (const std::string_view line : lines_of(text)) {
    const bool begins = scanner.at_statement();
    scanner.take(line);
    if (begins && !is_comment(line)) {
      const bool is_indented = line.front() == ' ' || line.front() == '\t';
      in_block = is_indented || line.front() == '@';
    }
    if (scanner.at_statement() && trimmed_all(line.substr(0, line.find('#'))).ends_with(':')) in_block = true;
    last = line;
  }
  const bool is_open = scanner.in_string() || scanner.depth() > 0 || scanner.joined();
  const bool ends_block = trimmed_all(last).empty() || text.ends_with("\n\n");
  return {is_open || (in_block && !ends_block) ? TextStatus::incomplete : TextStatus::complete, in_block ? 1 : 0};
}

}  // namespace lockstep::shell
