// %clear_output removes what the cell has shown so far, in a notebook.
#include <nlohmann/json.hpp>

#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome clear_output(MagicCall& call) {
  call.session.message("", {{"clear_output", {{"wait", call.given.has("--wait")}}}});
  return {};
}

const RegisterMagic kClearOutput({.name = "clear_output",
                                  .summary = "removes what the cell has shown so far, in a notebook",
                                  .help = "A terminal and `lockstep run` keep what was shown.",
                                  .takes = {{"--wait", "only when something new is shown"}},
                                  .line = clear_output,
                                  .at_any_time = true,
                                  .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
