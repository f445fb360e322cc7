// %dist_shutdown and %dist_reset: end the ranks; end them and start afresh.
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome dist_shutdown(MagicCall& call) {
  if (!call.session.started()) {
    call.session.message("no ranks are running");
    return {};
  }
  call.session.shutdown();
  call.session.message("the ranks have ended; the next cell starts them afresh");
  return {};
}

CellOutcome dist_reset(MagicCall& call) {
  call.session.shutdown();
  call.session.start();
  return {};
}

const RegisterMagic kDistShutdown(
    {.name = "dist_shutdown",
     .summary = "ends the ranks",
     .help =
         "Ends the workers, the store and the compiler of this session, and no other process. Names of cells are gone.",
     .line = dist_shutdown,
     .in_sessions = true});

const RegisterMagic kDistReset(
    {.name = "dist_reset",
     .summary = "ends the ranks and starts them afresh, with the same options",
     .help = "As %dist_shutdown, then %dist_init. Dead ranks are back after it; what all ranks held is lost.",
     .line = dist_reset,
     .in_sessions = true});

}  // namespace
}  // namespace lockstep::shell
