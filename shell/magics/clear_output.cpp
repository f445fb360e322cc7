// %clear_output: removes what the cell has shown so far, in a notebook.
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

const char* const kClearOutputUsage = "%clear_output [--wait]";

CellOutcome clear_output(MagicCall& call) {
  MagicArguments arguments(call.arguments, kClearOutputUsage);
  const bool waits = arguments.take_flag("", "--wait");
  if (const auto word = arguments.rest_word())
    throw UsageError("'" + *word + "' is not expected; usage: " + std::string(kClearOutputUsage));
  call.session.message("", {{"clear_output", {{"wait", waits}}}});
  return {};
}

const RegisterMagic kClearOutput({.name = "clear_output",
                                  .usage = kClearOutputUsage,
                                  .summary = "removes what the cell has shown so far, in a notebook",
                                  .help = "--wait  only when something new is shown\n"
                                          "A terminal and `lockstep run` keep what was shown.",
                                  .line = clear_output,
                                  .cell = {},
                                  .at_any_time = true,
                                  .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
