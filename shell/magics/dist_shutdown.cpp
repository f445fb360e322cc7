// %dist_shutdown and %dist_reset: end the ranks; end them and start afresh.
#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

void refuse_words(const MagicCall& call, const char* usage) {
  if (MagicArguments(call.arguments, usage).rest_word()) throw UsageError(std::string(usage) + " takes nothing");
}

CellOutcome dist_shutdown(MagicCall& call) {
  refuse_words(call, "%dist_shutdown");
  if (!call.session.started()) {
    call.session.message("no ranks are running");
    return {};
  }
  call.session.shutdown();
  call.session.message("the ranks have ended; the next cell starts them afresh");
  return {};
}

CellOutcome dist_reset(MagicCall& call) {
  refuse_words(call, "%dist_reset");
  call.session.shutdown();
  call.session.start();
  return {};
}

const RegisterMagic kShutdown(
    {.name = "dist_shutdown",
     .usage = "%dist_shutdown",
     .summary = "ends the ranks",
     .help =
         "Ends the workers, the store and the compiler of this session, and no other process. Names of cells are gone.",
     .line = dist_shutdown,
     .cell = {}});

const RegisterMagic kReset(
    {.name = "dist_reset",
     .usage = "%dist_reset",
     .summary = "ends the ranks and starts them afresh, with the same options",
     .help = "As %dist_shutdown, then %dist_init. Dead ranks are back after it; what all ranks held is lost.",
     .line = dist_reset,
     .cell = {}});

}  // namespace
}  // namespace lockstep::shell
