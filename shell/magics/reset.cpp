// %reset: names that later cells shall not see any more.
#include <algorithm>

#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"
#include "shell/text/suggest.h"

namespace lockstep::shell {
namespace {

const char* const kResetUsage = "%reset NAME... | --all";

CellOutcome reset(MagicCall& call) {
  MagicArguments arguments(call.arguments, kResetUsage);
  const bool all = arguments.take_flag("-a", "--all") || arguments.take_flag("-f", "");
  const std::vector<std::string> names = arguments.rest();
  if (all && !names.empty())
    throw UsageError("--all and names exclude one another; usage: " + std::string(kResetUsage));
  if (!all && names.empty())
    throw UsageError("say which names to forget, or --all; usage: " + std::string(kResetUsage));

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

const RegisterMagic kReset(
    {.name = "reset",
     .usage = kResetUsage,
     .summary = "forgets names: later cells do not see them, and may use them anew",
     .help = "Forgets these names on all ranks, or all names with --all. Code that was compiled with them keeps them.\n"
             "Objects live until their owner ends; to give memory back, first let go of it: net = nullptr;",
     .line = reset,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
