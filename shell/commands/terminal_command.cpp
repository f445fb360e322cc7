// `lockstep` without a subcommand is the interactive terminal.
#include <memory>

#include "shell/commands/command.h"
#include "shell/commands/session_flags.h"
#include "shell/jobs/session_hosts.h"
#include "shell/terminal/terminal.h"

namespace lockstep::shell {
namespace {

std::function<int()> set_up_terminal(CLI::App& app) {
  auto options = std::make_shared<SessionOptions>();
  add_session_options(app, *options);
  return [options] {
    const bool starts = asks_for_ranks(*options);
    choose_hosts(*options);
    return run_terminal(*options, starts);
  };
}

const RegisterCommand kTerminal({.name = "", .summary = "interactive terminal", .set_up = set_up_terminal});

}  // namespace
}  // namespace lockstep::shell
