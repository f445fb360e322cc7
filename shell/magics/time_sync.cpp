// %time_sync: what synchronising gradients costs. A cell that calls inspect::time_sync on all live ranks.
#include <fmt/format.h>

#include "protocol/error.h"
#include "shell/magics/inspector_magic.h"
#include "shell/magics/object_list.h"
#include "shell/scripts/magic_arguments.h"

namespace lockstep::shell {
namespace {

const char* const kTimeSyncUsage = "%time_sync STEP [STATE...] [--steps N] [--warm-up N]";

CellOutcome time_sync(MagicCall& call) {
  MagicArguments arguments(call.arguments, kTimeSyncUsage);
  const auto steps = arguments.take_value("", "--steps");
  const auto warm_up = arguments.take_value("", "--warm-up");
  const std::vector<std::string> words = arguments.rest();
  if (words.empty())
    throw UsageError(std::string("%time_sync needs a callable: %time_sync step; usage: ") + kTimeSyncUsage);
  std::string options = ".name(" + cxx_string(words[0]) + ")";
  if (steps) options += fmt::format(".steps({})", parse_count(*steps, "--steps"));
  if (warm_up) options += fmt::format(".warm_up({})", parse_count(*warm_up, "--warm-up", 0));
  const CellSettings settings = inspector_settings(call, std::nullopt);
  // Without a word on what the step changes: all that cells have defined.
  std::string code = words.size() > 1 ? "__lockstep::time_sync(" : "__lockstep::time_sync_among(";
  code += "__lockstep::TimeSyncOptions()" + options;
  for (const std::string& word : words) code += ", " + word;
  if (words.size() == 1)
    for (const std::string& name : object_names(call.session, *settings.ranks))
      if (name != words[0]) code += ", " + name;
  return run_inspector(call, code + ")", settings, /*shows=*/true);
}

const RegisterMagic kTimeSync(
    {.name = "time_sync",
     .usage = kTimeSyncUsage,
     .summary = "a step with gradient synchronisation against one without: exposed, hidden, who is slow",
     .help = "STEP: a callable that trains one step, or takes a bool: whether to synchronise.\n"
             "STATE: what it changes (the wrapper, the optimizer, ...); left out: every module, optimizer and tensor "
             "that cells have defined. It is put back afterwards, as the random numbers are.\n"
             "--steps N     timed steps of each kind (15)\n"
             "--warm-up N   steps before (3)",
     .line = time_sync,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
