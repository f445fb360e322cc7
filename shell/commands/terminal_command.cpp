// `lockstep` without a subcommand: the interactive terminal.
#include <memory>

#include "shell/commands/command.h"
#include "shell/commands/session_flags.h"
#include "shell/terminal/terminal.h"

namespace lockstep::shell {
namespace {

/// Whether the user said what the session shall be: then it starts before the first prompt, and not with the first
/// cell.
bool asks_for_ranks(const SessionOptions& options) {
  return options.num_processes || !options.gpu_ids.empty() || options.share_gpu || options.all_gpus_visible ||
         options.backend != "auto";
}

std::function<int()> set_up_terminal(CLI::App& app) {
  auto options = std::make_shared<SessionOptions>();
  add_session_options(app, *options);
  return [options] { return run_terminal(*options, asks_for_ranks(*options)); };
}

const RegisterCommand kTerminal({.name = "", .summary = "interactive terminal", .set_up = set_up_terminal});

}  // namespace
}  // namespace lockstep::shell
