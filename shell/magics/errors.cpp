// %errors shows what the compiler had to say about the last cell, whole.
#include <nlohmann/json.hpp>

#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome errors(MagicCall& call) {
  const std::string& text = call.session.compiler_messages();
  call.session.message(text.empty() ? "the compiler had nothing to say about the last cell" : text,
                       nlohmann::json{{"messages", text}});
  return {};
}

const RegisterMagic kErrors(
    {.name = "errors",
     .summary = "all that the compiler had to say about the last cell",
     .help = "After a cell that did not compile, or compiled with warnings: every candidate and "
             "every note,\nwhere the messages below the cell leave some out.",
     .line = errors});

}  // namespace
}  // namespace lockstep::shell
