// %help and %NAME? show what magics there are, and what one does.
#include <nlohmann/json.hpp>

#include "shell/session/session_core.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

bool has_line(const Magic& magic, MagicForm line_form) {
  return magic.line || (line_form == MagicForm::job_line && magic.job_line);
}

std::string name_of(const Magic& magic, MagicForm line_form) {
  if (!magic.written.empty()) return magic.written;
  if (!magic.cell) return "%" + magic.name;
  return has_line(magic, line_form) ? "%" + magic.name + ", %%" + magic.name : "%%" + magic.name;
}

std::string all_magics(const std::vector<const Magic*>& magics, MagicForm line_form) {
  std::vector<std::vector<std::string>> rows;
  for (const Magic* magic : magics) rows.push_back({name_of(*magic, line_form), magic->summary});
  return table(rows) +
         "\n%NAME? shows the help of a magic, EXPR? what a name of a cell is.\n"
         "Cell magics (%%) come first in a cell; a line magic (%) stands where a\nstatement may begin.\n";
}

std::string one_magic(std::string name, MagicForm line_form) {
  name.erase(0, name.find_first_not_of('%') == std::string::npos ? name.size() : name.find_first_not_of('%'));
  const MagicRegistry& registry = MagicRegistry::instance();
  // An unknown name is an error with the nearest one; it is the table's to say.
  if (!registry.knows(name)) registry.find(name, false);
  for (const Magic* magic : registry.all())
    if (magic->name == name) return help_of(*magic, line_form);
  return "";
}

CellOutcome help(MagicCall& call) {
  const std::optional<std::string> name = call.given.word();
  const MagicForm form = call.session.line_form();
  const auto magics = MagicRegistry::instance().available(call.session.kind());
  nlohmann::json data = nlohmann::json::array();
  for (const Magic* magic : magics)
    data.push_back({{"name", magic->name}, {"usage", usage_of(*magic, form)}, {"summary", magic->summary}});
  if (name)
    call.session.help(one_magic(*name, form));
  else
    call.session.help(all_magics(magics, call.session.line_form()), std::move(data));
  return {};
}

const RegisterMagic kHelp({.name = "help",
                           .summary = "all magics, or what one of them does",
                           .help = "%help rank and %rank? are the same; so are %help, help and a ? alone.",
                           .takes = {"[MAGIC]"},
                           .line = help,
                           .in_jobs = true});

/// Returns the names alone, as many as fit into a line.
std::string names_in_lines(const std::vector<std::string>& names) {
  constexpr size_t kLineWidth = 78;
  std::string text;
  size_t width = 0;
  for (const std::string& name : names) {
    if (width > 0 && width + 2 + name.size() > kLineWidth) {
      text += '\n';
      width = 0;
    }
    text += (width > 0 ? "  " : "") + name;
    width += (width > 0 ? 2 : 0) + name.size();
  }
  return text;
}

CellOutcome lsmagic(MagicCall& call) {
  std::vector<std::string> line_magics, cell_magics;
  for (const Magic* magic : MagicRegistry::instance().available(call.session.kind())) {
    if (magic->name.find_first_of("?!") != std::string::npos) continue;
    if (has_line(*magic, call.session.line_form())) line_magics.push_back("%" + magic->name);
    if (magic->cell) cell_magics.push_back("%%" + magic->name);
  }
  call.session.message(
      "Line magics:\n" + names_in_lines(line_magics) + "\n\nCell magics:\n" + names_in_lines(cell_magics),
      {{"line", line_magics}, {"cell", cell_magics}});
  return {};
}

const RegisterMagic kLsMagic({.name = "lsmagic",
                              .summary = "the names of all magics",
                              .help = "%help has a line about each of them.",
                              .line = lsmagic,
                              .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
