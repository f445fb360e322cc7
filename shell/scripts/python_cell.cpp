#include "shell/scripts/python_cell.h"

#include <algorithm>
#include <array>
#include <optional>

#include "protocol/error.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

constexpr std::array<std::string_view, 5> kPdbWords = {"continue", "where", "up", "down", "detach"};

/// Reads what of Python's tokens decides where a statement begins: strings, brackets, comments, lines that are joined.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  /// Whether the line at this offset may begin a statement. Takes the lines before it.
  bool may_begin(size_t line) {
    while (at_ < line) {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      take(text_.substr(at_, end - at_));
      at_ = end + 1;
    }
    return at_statement();
  }
  void skip_magic(size_t end) { at_ = end + 1; }
  bool at_statement() const { return quote_.empty() && depth_ == 0 && !joined_; }
  bool in_string() const { return !quote_.empty(); }
  int depth() const { return depth_; }
  bool joined() const { return joined_; }

 private:
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

  std::string_view text_;
  size_t at_ = 0;
  std::string quote_;  // of the string that is open; empty: none
  int depth_ = 0;
  bool joined_ = false;
};

bool is_comment(std::string_view line) {
  const std::string_view text = trimmed(line);
  return text.empty() || text.starts_with('#');
}

std::string_view name_at(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && is_name_character(text[end])) ++end;
  return text.substr(0, end);
}

std::optional<FoundMagic> find_python_magic(std::string_view line, int number, const MagicRegistry& registry) {
  const auto found = [&](std::string_view name, std::string_view arguments, bool cell_magic = false) {
    return FoundMagic{cell_magic, {std::string(name), std::string(arguments), number}};
  };
  std::string_view text = trimmed(line);
  if (text.starts_with("%%")) {
    const std::string_view name = name_at(text.substr(2));
    return found(name, trimmed(text.substr(2 + name.size())), /*cell_magic=*/true);
  }
  if (text.starts_with("# %") && registry.knows(name_at(text.substr(3)))) text.remove_prefix(2);
  if (line.empty() || line.front() == ' ' || line.front() == '\t') return std::nullopt;
  if (text.starts_with('%')) {
    const std::string_view name = name_at(text.substr(1));
    if (name.empty()) return std::nullopt;
    const std::string_view rest = trimmed(text.substr(1 + name.size()));
    return rest == "?" || rest == "??" ? found("help", name) : found(name, rest);
  }
  if (text.starts_with('!') && text.size() > 1) return found("!", trimmed(text.substr(1)));
  if (text == "continue") return found("continue", "");  // outside a loop it is no Python
  if (text == "?") return found("help", "");
  if (!text.ends_with('?')) return std::nullopt;
  std::string_view expression = text;
  while (expression.ends_with('?')) expression.remove_suffix(1);
  const bool is_name = !expression.empty() && std::all_of(expression.begin(), expression.end(), [](char c) {
    return is_name_character(c) || std::string_view(".[]'\"").find(c) != std::string_view::npos;
  });
  if (!is_name) return std::nullopt;
  return found(text.ends_with("??") ? "??" : "?", expression);
}

}  // namespace

bool is_cpp_cell(std::string_view text) {
  for (const std::string_view line : lines_of(text)) {
    const std::string_view word = trimmed(line);
    if (word.starts_with("%%")) {
      if (name_at(word.substr(2)) == "cpp") return true;
    } else if (!is_comment(line)) {
      return false;
    }
  }
  return false;
}

ParsedCell parse_python_cell(std::string_view text, const MagicRegistry& registry, bool at_breakpoint) {
  const std::vector<std::string_view> lines = lines_of(text);
  const auto first = std::find_if_not(lines.begin(), lines.end(), is_comment);
  const std::string_view words =
      first == lines.end() ? "" : trimmed(text.substr(static_cast<size_t>(first->data() - text.data())));
  const std::string_view word = name_at(words);
  const std::string_view count = trimmed(words.substr(word.size()));
  const bool takes_count = word == "up" || word == "down";
  if (at_breakpoint && std::find(kPdbWords.begin(), kPdbWords.end(), word) != kPdbWords.end() &&
      (count.empty() || (takes_count && count.find_first_not_of("0123456789") == std::string_view::npos))) {
    const int line = static_cast<int>(first - lines.begin()) + 1;
    ParsedCell cell;
    cell.parts.push_back({.is_code = false, .code = {}, .magic = {std::string(word), std::string(count), line}});
    return cell;
  }

  Scanner scanner(text);
  return take_apart(
      text, registry,
      {.may_begin = [&](size_t line) { return scanner.may_begin(line); },
       .skip_magic = [&](size_t end) { scanner.skip_magic(end); },
       .has_code = [](std::string_view part) { return !std::ranges::all_of(lines_of(part), is_comment); },
       .find = [&](std::string_view line, int number) { return find_python_magic(line, number, registry); }});
}

Completeness scan_python_completeness(std::string_view text) {
  Scanner scanner(text);
  std::string_view last;
  bool in_block = false;
  for (const std::string_view line : lines_of(text)) {
    const bool begins = scanner.may_begin(offset_of(line, text));
    if (begins && !is_comment(line)) {
      const bool is_indented = line.front() == ' ' || line.front() == '\t';
      in_block = is_indented || line.front() == '@';
    }
    const bool ends = scanner.may_begin(offset_of(line, text) + line.size() + 1);
    if (ends && trimmed(line.substr(0, line.find('#'))).ends_with(':')) in_block = true;
    last = line;
  }
  const bool is_open = scanner.in_string() || scanner.depth() > 0 || scanner.joined();
  const bool ends_block = trimmed(last).empty() || text.ends_with("\n\n");
  return {is_open || (in_block && !ends_block) ? TextStatus::incomplete : TextStatus::complete, in_block ? 1 : 0};
}

}  // namespace lockstep::shell
