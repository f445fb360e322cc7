// %who: the names that cells have defined.
#include <nlohmann/json.hpp>

#include "shell/session/session_core.h"
#include "shell/text/table.h"

namespace lockstep::shell {
namespace {

CellOutcome who(MagicCall& call) {
  const std::optional<std::string> kind = call.given.word();
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
     .summary = "names that cells have defined, with type, ranks and cell",
     .help = "Lists the newest definition of each name, the ranks that see it, and the cell that it is from.\n"
             "A kind narrows the list to names of that kind.",
     .takes = {"[variable|function|type|template|macro|namespace|alias]"},
     .line = who,
     .job_line =
         [](MagicCall& call) {
           const CodeResult result = call.session.run_python(
               "__import__('lockstep.prompt._magics', fromlist=['who']).who({**globals(), **locals()})", {}, call.line);
           return CellOutcome{.status = result.status, .findings = {}};
         },
     .job_takes = MagicDescription{}});

}  // namespace
}  // namespace lockstep::shell
