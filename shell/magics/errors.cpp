// %errors: what the compiler had to say about the last cell, whole.
#include <nlohmann/json.hpp>

#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

const char* const kErrorsUsage = "%errors";

CellOutcome errors(MagicCall& call) {
  if (!MagicArguments(call.arguments, kErrorsUsage).rest().empty())
    throw UsageError(std::string("%errors takes nothing; usage: ") + kErrorsUsage);
  const std::string& text = call.session.compiler_messages;
  call.session.message(text.empty() ? "the compiler had nothing to say about the last cell" : text,
                       nlohmann::json{{"messages", text}});
  return {};
}

const RegisterMagic kErrors(
    {.name = "errors",
     .usage = kErrorsUsage,
     .summary = "all that the compiler had to say about the last cell",
     .help = "After a cell that did not compile, or compiled with warnings: every candidate and "
             "every note,\nwhere the messages below the cell leave some out.",
     .line = errors,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
