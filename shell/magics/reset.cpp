// %reset hides names from later cells.
#include <algorithm>

#include "protocol/error.h"
#include "shell/session/session_core.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

CellOutcome reset(MagicCall& call) {
  const bool all = call.given.has("--all");
  const std::vector<std::string>& names = call.given.words();
  if (!all && names.empty()) throw UsageError("%reset needs the names to forget, or --all");

  const auto response = call.session.ask(protocol::ListNames{});
  std::vector<std::string> known;
  if (const auto* list = std::get_if<protocol::Names>(&response))
    for (const protocol::Name& name : list->names) known.push_back(name.name);
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError("no cell has defined '" + name + "'" + did_you_mean(name, known) +
                       "; %who lists the names. Nothing was forgotten");
  call.session.ask(protocol::Forget{.names = names, .undo = 0});
  const size_t count = all ? known.size() : names.size();
  call.session.message("forgot " + std::to_string(count) + (count == 1 ? " name" : " names"));
  return {};
}

CellOutcome reset_python(MagicCall& call) {
  const bool all = call.given.has("--all");
  if (all != call.given.words().empty()) throw UsageError("%reset needs the names to forget, or --all");
  std::string names;
  for (const std::string& each : call.given.words()) names += nlohmann::json(each).dump() + ", ";
  const CodeResult result = call.session.run_python(
      "__import__('lockstep.prompt._magics', fromlist=['reset']).reset(globals(), [" + names + "])", {}, call.line);
  return {.status = result.status, .findings = {}};
}

const RegisterMagic kReset(
    {.name = "reset",
     .summary = "forgets names: later cells do not see them, and may use them anew",
     .help = "On all ranks. Code that was compiled with them keeps them.\n"
             "Objects live until their owner ends; to give memory back, first let go of it: net = nullptr;",
     .takes = {{"[NAME...]", "names of cells"}, {"|--all,-a,-f", "all names"}},
     .line = reset,
     .job_line = reset_python});

}  // namespace
}  // namespace lockstep::shell
