// %help and %NAME?: what magics there are, and what one does.
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

const char* const kHelpUsage = "%help [NAME]";

std::string name_of(const Magic& magic) {
  if (magic.name == "?") return "EXPR?";
  if (magic.name == "!") return "!COMMAND";
  if (!magic.cell) return "%" + magic.name;
  return magic.line ? "%" + magic.name + ", %%" + magic.name : "%%" + magic.name;
}

std::string all_magics() {
  std::vector<std::vector<std::string>> rows;
  for (const Magic* magic : MagicRegistry::instance().all()) rows.push_back({name_of(*magic), magic->summary});
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
    if (magic->name == name)
      return magic->usage + "\n    " + magic->summary + (magic->help.empty() ? "" : "\n\n" + magic->help);
  return "";
}

CellOutcome help(MagicCall& call) {
  const std::optional<std::string> name = MagicArguments(call.arguments, kHelpUsage).rest_word();
  nlohmann::json data = nlohmann::json::array();
  for (const Magic* magic : MagicRegistry::instance().all())
    data.push_back({{"name", magic->name}, {"usage", magic->usage}, {"summary", magic->summary}});
  if (name)
    call.session.message(one_magic(*name));
  else
    call.session.message(all_magics(), std::move(data));
  return {};
}

const RegisterMagic kHelp({.name = "help",
                           .usage = kHelpUsage,
                           .summary = "all magics, or what one of them does",
                           .help = "%help rank and %rank? are the same.",
                           .line = help,
                           .cell = {}});

}  // namespace
}  // namespace lockstep::shell
