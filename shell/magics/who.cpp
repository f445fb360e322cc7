// %who: the names that cells have defined.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"
#include "shell/text/suggest.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

const char* const kWhoUsage = "%who [variable|function|type|template|macro|namespace|alias]";

CellOutcome who(MagicCall& call) {
  const std::optional<std::string> kind = MagicArguments(call.arguments, kWhoUsage).rest_word();
  const std::vector<std::string> kinds = {"variable", "function", "type", "template", "macro", "namespace", "alias"};
  if (kind && std::find(kinds.begin(), kinds.end(), *kind) == kinds.end())
    throw UsageError("there is no kind of name '" + *kind + "'" + did_you_mean(*kind, kinds) +
                     "; kinds: variable, function, type, template, macro, namespace, alias");
  const auto response = call.session.ask(protocol::ListNames{});
  const auto* names = std::get_if<protocol::Names>(&response);
  std::vector<std::vector<std::string>> rows = {{"name", "kind", "type", "ranks", "cell"}};
  nlohmann::json data = nlohmann::json::array();
  if (names)
    for (const protocol::Name& name : names->names) {
      if (kind && name.kind != *kind) continue;
      rows.push_back({name.name, name.kind, name.type, name.ranks.str(), std::to_string(name.cell)});
      data.push_back(
          {{"name", name.name}, {"kind", name.kind}, {"type", name.type}, {"ranks", name.ranks}, {"cell", name.cell}});
    }
  if (rows.size() > 1)
    call.session.message(table(rows), std::move(data));
  else
    call.session.message(kind ? "no cell has defined a " + *kind : "no cell has defined a name yet", std::move(data));
  return {};
}

const RegisterMagic kWho(
    {.name = "who",
     .usage = kWhoUsage,
     .summary = "names that cells have defined, with type, ranks and cell",
     .help = "Lists the newest definition of each name, the ranks that see it, and the cell that it is from.\n"
             "A kind narrows the list to names of that kind.",
     .line = who,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
