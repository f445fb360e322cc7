#include "compiler/diagnostics/diagnostic_text.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace lockstep::compiler {
namespace {

constexpr size_t kLinesOfAGroup = 40, kLinesInAll = 120;
// Clang sorts the candidates of an overload: the nearest come first.
constexpr int kCandidates = 4;

size_t lines_of(std::string_view text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

/// Returns the error at the user's line, if there is one, then the error where it is.
std::string head_of(const MessageGroup& group) { return group.text_here + group.text; }

/// Returns "cell 7:2:6", from the first line.
std::string place_of(const std::string& text) { return text.substr(0, text.find(": error")); }

struct Brief {
  std::string text;
  size_t candidates = 0, notes = 0;  // left out
};

Brief brief_of(const MessageGroup& group) {
  Brief brief{.text = head_of(group)};
  size_t lines = lines_of(brief.text);
  int candidates = 0;
  bool follows_omitted = false;  // notes on the expansion of a macro belong to the note before them
  for (const auto& note : group.notes) {
    const bool candidate = note.message.starts_with("candidate");
    const bool belongs = note.message.starts_with("expanded from macro");
    const bool too_many = candidate && ++candidates > kCandidates && !note.is_here;
    const bool too_long = lines + lines_of(note.text) > kLinesOfAGroup;
    const bool omit = belongs ? follows_omitted || too_long : too_many || too_long;
    follows_omitted = omit;
    if (omit) {
      if (!belongs) ++(candidate ? brief.candidates : brief.notes);
      continue;
    }
    brief.text += note.text;
    lines += lines_of(note.text);
  }
  return brief;
}

std::string count(size_t number, const char* what) {
  return std::to_string(number) + " more " + what + (number == 1 ? "" : "s");
}

}  // namespace

DiagnosticText compose(const std::vector<MessageGroup>& groups) {
  DiagnosticText result;
  size_t errors = 0, warnings = 0, candidates = 0, notes = 0;  // left out
  std::set<std::string> places;                                // in the cell, of errors that lie in templates
  for (const auto& group : groups) {
    result.whole += head_of(group);
    for (const auto& note : group.notes) result.whole += note.text;
    const Brief brief = brief_of(group);
    // Errors in templates that come from the same line of the cell are one mistake.
    const bool follows = group.is_error && (group.text_here.empty() ? !group.is_here && !places.empty()
                                                                    : !places.insert(place_of(group.text_here)).second);
    const bool too_long = !result.brief.empty() && lines_of(result.brief) + lines_of(brief.text) > kLinesInAll;
    if (follows || too_long) {
      ++(group.is_error ? errors : warnings);
      continue;
    }
    result.brief += brief.text;
    candidates += brief.candidates;
    notes += brief.notes;
  }
  std::string omitted;
  const auto add = [&](size_t number, const char* what) {
    if (number != 0) omitted += (omitted.empty() ? "" : ", ") + count(number, what);
  };
  add(errors, "error");
  add(warnings, "warning");
  add(candidates, "candidate");
  add(notes, "note");
  if (omitted.empty())
    result.whole.clear();
  else
    result.brief += "… " + omitted + ": %errors shows everything\n";
  return result;
}

}  // namespace lockstep::compiler
