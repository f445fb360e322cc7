#include "shell/scripts/magic.h"

#include <algorithm>

#include "protocol/error.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {

const MagicDescription& Magic::takes_as(MagicForm form) const {
  if (form == MagicForm::cell) return cell_takes;
  return form == MagicForm::job_line && job_takes ? *job_takes : takes;
}

std::string Magic::usage_as(MagicForm form) const {
  if (!written.empty()) return written;
  return (form == MagicForm::cell ? "%%" : "%") + name + usage_of(takes_as(form));
}

MagicArguments Magic::read(MagicForm form, std::string_view text) const {
  const MagicDescription& description = takes_as(form);
  // A verbatim text that is empty may be one that is missing.
  if (verbatim && form != MagicForm::cell && !text.empty()) return {};
  std::string usage = usage_as(form);
  const bool line_takes_code =
      std::ranges::any_of(takes, [](const MagicArgument& each) { return each.value == "CODE"; });
  if (form == MagicForm::cell && line && line_takes_code) usage += ", or " + usage_as(MagicForm::line);
  return {description, usage, text};
}

std::string usage_of(const Magic& magic, MagicForm line_form) {
  const bool has_line = magic.line || (line_form == MagicForm::job_line && magic.job_line);
  const std::string line = has_line ? magic.usage_as(line_form) : "";
  return line + (has_line && magic.cell ? ", " : "") + (magic.cell ? magic.usage_as(MagicForm::cell) : "");
}

std::string details_of(const Magic& magic, MagicForm line_form) {
  std::string arguments = help_of(magic.takes_as(line_form));
  if (const std::string more = help_of(magic.cell_takes); arguments.find(more) == std::string::npos) arguments += more;
  if (arguments.empty()) return magic.help;
  return magic.help + (magic.help.empty() ? "" : "\n") + arguments.substr(0, arguments.size() - 1);
}

std::string help_of(const Magic& magic, MagicForm line_form) {
  const std::string details = details_of(magic, line_form);
  return usage_of(magic, line_form) + "\n    " + magic.summary + (details.empty() ? "" : "\n\n" + details);
}

MagicRegistry& MagicRegistry::instance() {
  static MagicRegistry registry;
  return registry;
}

void MagicRegistry::add(Magic magic) {
  std::string name = magic.name;
  magics_.insert_or_assign(std::move(name), std::move(magic));
}

bool MagicRegistry::knows(std::string_view name) const { return magics_.contains(name); }

const Magic& MagicRegistry::find(std::string_view name, bool cell_magic) const {
  const std::string prefix = cell_magic ? "%%" : "%";
  const auto found = magics_.find(name);
  if (found == magics_.end()) {
    std::vector<std::string> names;
    for (const auto& [known, magic] : magics_)
      if (cell_magic ? magic.cell != nullptr : magic.line != nullptr) names.push_back(known);
    throw UsageError("there is no magic " + prefix + std::string(name) + did_you_mean(name, names, prefix) +
                     " (%help lists all)");
  }
  const Magic& magic = found->second;
  if (cell_magic && !magic.cell)
    throw UsageError("%" + magic.name + " is a line magic: write it with one %, as " + magic.usage_as(MagicForm::line));
  if (!cell_magic && !magic.line && !magic.job_line)
    throw UsageError("%%" + magic.name + " is a cell magic: write it with two %, in the first line of the cell");
  return magic;
}

std::vector<const Magic*> MagicRegistry::all() const {
  std::vector<const Magic*> result;
  for (const auto& [name, magic] : magics_) result.push_back(&magic);
  return result;
}

std::vector<const Magic*> MagicRegistry::available(PromptKind kind) const {
  const auto works = [kind](const Magic& magic) {
    if (kind == PromptKind::cpp) return !magic.only_in_jobs && !magic.only_with_python;
    const bool takes_python = magic.in_jobs || magic.only_with_python || magic.job_line;
    return takes_python || (kind == PromptKind::job ? magic.only_in_jobs : magic.in_sessions);
  };
  std::vector<const Magic*> result;
  for (const auto& [name, magic] : magics_)
    if (works(magic)) result.push_back(&magic);
  return result;
}

}  // namespace lockstep::shell
