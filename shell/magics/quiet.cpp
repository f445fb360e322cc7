// %quiet: leaves out what is only a note.
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

const char* const kQuietUsage = "%quiet [on|off]";

CellOutcome quiet(MagicCall& call) {
  const std::optional<std::string> word = MagicArguments(call.arguments, kQuietUsage).rest_word();
  if (word && *word != "on" && *word != "off")
    throw UsageError("'" + *word + "' is neither on nor off; usage: " + kQuietUsage);
  call.session.quiet = word ? *word == "on" : !call.session.quiet;
  call.session.message(call.session.quiet ? "" : "notes are shown again",
                       nlohmann::json{{"quiet", call.session.quiet}});
  return {};
}

const RegisterMagic kQuiet({.name = "quiet",
                            .usage = kQuietUsage,
                            .summary = "leaves out notes; output, values, errors and faults stay",
                            .help = "On: findings that are no faults (ok and notes), states of ranks and the words at "
                                    "the start are not shown to people. --json\n"
                                    "and exit codes are as ever. Without on or off: the other way round.",
                            .line = quiet,
                            .cell = {},
                            .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
