// !COMMAND: a command of the shell's, run once, where `lockstep` runs.
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

constexpr int kNoSuchCommand = 127;  // the shell's code

CellOutcome command(MagicCall& call) {
  const ProcessEnd end = call.session.run_command(call.arguments);
  if (end.signal == 0 && end.code == 0) return {};
  std::string message = "'" + call.arguments + "' " + end.str();
  if (end.code == kNoSuchCommand)
    message += ": the shell knows no such command. To negate a value, write `not` for `!`";
  call.session.show(
      ErrorEvent{.cell = call.session.current_number(), .ranks = {}, .type = "command_error", .message = message});
  return {.status = end.signal == 0 ? CellStatus::error : CellStatus::interrupted};
}

const RegisterMagic kCommand(
    {.name = "!",
     .summary = "runs a command of the shell's once, where lockstep runs",
     .help =
         "In the working directory and environment of the ranks (%cd, %env), without input. What it writes is shown as "
         "it\n"
         "comes. A command that fails fails the cell; Ctrl-C interrupts it. A line that negates a name of C++ is C++.",
     .line = command,
     .verbatim = true,
     .in_jobs = true,
     .written = "!COMMAND"});

}  // namespace
}  // namespace lockstep::shell
