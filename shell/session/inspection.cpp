#include "shell/session/inspection.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "shell/scripts/code_scanner.h"
#include "shell/scripts/magic_parser.h"
#include "shell/session/completion.h"
#include "shell/session/python_questions.h"
#include "shell/session/session_core.h"
#include "shell/text/table.h"
#include "shell/text/text.h"

namespace lockstep::shell {
namespace {

/// Lines after the first stand below the first.
std::string inset(const std::string& text) {
  std::string result;
  for (const std::string_view line : lines_of(text))
    result += (result.empty() ? "" : "\n             ") + std::string(line);
  return result;
}

/// Returns where the name that ends at `end` begins, with objects and scopes before it: `net->layers[0].weight`.
size_t name_begin(std::string_view text, size_t end) {
  size_t begin = end;
  for (;;) {
    while (begin > 0 && is_name_character(text[begin - 1])) --begin;
    size_t before = begin;
    if (before >= 1 && text[before - 1] == '.') {
      before -= 1;
    } else if (before >= 2 && (text.substr(before - 2, 2) == "->" || text.substr(before - 2, 2) == "::")) {
      before -= 2;
    } else {
      return begin;
    }
    while (before > 0 && (text[before - 1] == ']' || text[before - 1] == ')')) {
      const char close = text[before - 1], open = close == ']' ? '[' : '(';
      int depth = 0;
      size_t at = before;
      do {
        --at;
        depth += text[at] == close ? 1 : text[at] == open ? -1 : 0;
      } while (at > 0 && depth > 0);
      if (depth > 0) return begin;
      before = at;
    }
    if (before == 0 || !is_name_character(text[before - 1])) return text.substr(before, 2) == "::" ? before : begin;
    begin = before;
  }
}

Description describe_magic(std::string_view name, MagicForm line_form) {
  name.remove_prefix(std::min(name.find_first_not_of('%'), name.size()));
  for (const Magic* magic : MagicRegistry::instance().all())
    if (magic->name == name)
      return {true,
              help_of(*magic, line_form),
              {{"expression", "%" + magic->name},
               {"usage", usage_of(*magic, line_form)},
               {"summary", magic->summary},
               {"help", details_of(*magic, line_form)}}};
  return {};
}

}  // namespace

Description describe(SessionCore& session, const std::string& expression, bool with_source) {
  if (expression.starts_with('%')) return describe_magic(expression, session.line_form());
  if (session.language_of_cell() == Language::python) return describe_python(session, expression);
  if (!session.start_compiler()) return {};
  const auto response = session.ask(protocol::Inspect{expression, session.target_ranks()});
  const auto* answer = std::get_if<protocol::Inspection>(&response);
  if (!answer || !answer->found) return {};
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) rows.push_back({what, inset(value)});
  };
  const std::string cell = answer->cell ? "cell " + std::to_string(*answer->cell) : answer->where;
  add("type", answer->type);
  if (!with_source || answer->source.empty()) add("declaration", answer->declaration);
  add("comment", answer->comment);
  add("defined in", cell);
  if (with_source) add("source", answer->source);
  return {true,
          table(rows),
          {{"expression", expression},
           {"type", answer->type},
           {"declaration", answer->declaration},
           {"comment", answer->comment},
           {"where", answer->where},
           {"source", answer->source},
           {"cell", answer->cell ? nlohmann::json(*answer->cell) : nlohmann::json(nullptr)}}};
}

Description describe_at(SessionCore& session, const std::string& text, int64_t offset, bool with_source) {
  size_t end = static_cast<size_t>(std::clamp<int64_t>(offset, 0, static_cast<int64_t>(text.size())));
  const size_t line_begin = end == 0 ? 0 : text.rfind('\n', end - 1) + 1;  // npos + 1 is 0
  const size_t line_end = std::min(text.find('\n', end), text.size());
  const std::string_view line = std::string_view(text).substr(line_begin, line_end - line_begin);
  while (end < text.size() && is_name_character(text[end])) ++end;
  if (const std::string_view magic = magic_of(line); !magic.empty() && end <= offset_of(magic, text) + magic.size())
    return describe_magic(magic, session.line_form());
  const auto named = [&](size_t last) -> Description {
    const size_t begin = name_begin(text, last);
    if (begin == last) return {};
    return describe(session, text.substr(begin, last - begin), with_source);
  };
  if (Description found = named(end); found.found) return found;
  const std::optional<size_t> bracket = open_call(std::string_view(text).substr(0, end));
  if (!bracket) return {};
  const auto signatures = signatures_in_cell(session, text, static_cast<int64_t>(*bracket) + 1);
  if (signatures.empty()) return named(*bracket);
  std::string labels;
  nlohmann::json list = nlohmann::json::array();
  for (const protocol::Signature& each : signatures) {
    labels += (labels.empty() ? "" : "\n") + each.label;
    list.push_back(each.label);
  }
  const size_t begin = name_begin(text, *bracket);
  return {true, labels, {{"expression", text.substr(begin, *bracket - begin)}, {"signatures", std::move(list)}}};
}

}  // namespace lockstep::shell
