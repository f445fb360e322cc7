// %help and %NAME?: what magics there are, and what one does.
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

const char* const kHelpUsage = "%help [MAGIC]";

std::string name_of(const Magic& magic) {
  if (magic.name == "?" || magic.name == "??") return "EXPR" + magic.name;
  if (magic.name == "!") return "!COMMAND";
  if (!magic.cell) return "%" + magic.name;
  return magic.line ? "%" + magic.name + ", %%" + magic.name : "%%" + magic.name;
}

std::string all_magics(const std::vector<const Magic*>& magics) {
  std::vector<std::vector<std::string>> rows;
  for (const Magic* magic : magics) rows.push_back({name_of(*magic), magic->summary});
  return table(rows) +
         "\n%NAME? shows the help of a magic, EXPR? what a name of a cell is.\n"
         "Cell magics (%%) come first in a cell; a line magic (%) stands where a\nstatement may begin.\n";
}

std::string one_magic(std::string name) {
  name.erase(0, name.find_first_not_of('%') == std::string::npos ? name.size() : name.find_first_not_of('%'));
  const MagicRegistry& registry = MagicRegistry::instance();
  // An unknown name is an error with the nearest one; it is the table's to say.
  if (!registry.knows(name)) registry.find(name, false);
  for (const Magic* magic : registry.all())
    if (magic->name == name) return help_of(*magic);
  return "";
}

CellOutcome help(MagicCall& call) {
  const std::optional<std::string> name = MagicArguments(call.arguments, kHelpUsage).rest_word();
  const auto magics = MagicRegistry::instance().available(call.session.options.job.has_value());
  nlohmann::json data = nlohmann::json::array();
  for (const Magic* magic : magics)
    data.push_back({{"name", magic->name}, {"usage", magic->usage}, {"summary", magic->summary}});
  if (name)
    call.session.help(one_magic(*name));
  else
    call.session.help(all_magics(magics), std::move(data));
  return {};
}

const RegisterMagic kHelp({.name = "help",
                           .usage = kHelpUsage,
                           .summary = "all magics, or what one of them does",
                           .help = "%help rank and %rank? are the same; so are %help, help and a ? alone.",
                           .line = help,
                           .cell = {},
                           .in_jobs = true});

/// The names alone, as many as fit into a line.
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
  if (MagicArguments(call.arguments, "%lsmagic").rest_word()) throw UsageError("%lsmagic takes nothing; see %help");
  std::vector<std::string> line_magics, cell_magics;
  for (const Magic* magic : MagicRegistry::instance().available(call.session.options.job.has_value())) {
    if (magic->name.find_first_of("?!") != std::string::npos) continue;
    if (magic->line) line_magics.push_back("%" + magic->name);
    if (magic->cell) cell_magics.push_back("%%" + magic->name);
  }
  call.session.message(
      "Line magics:\n" + names_in_lines(line_magics) + "\n\nCell magics:\n" + names_in_lines(cell_magics),
      {{"line", line_magics}, {"cell", cell_magics}});
  return {};
}

const RegisterMagic kLsMagic({.name = "lsmagic",
                              .usage = "%lsmagic",
                              .summary = "the names of all magics",
                              .help = "%help has a line about each of them.",
                              .line = lsmagic,
                              .cell = {},
                              .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
