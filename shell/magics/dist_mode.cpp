// %dist_mode: whether cells that name no ranks go to all of them.
#include "protocol/error.h"
#include "shell/scripts/magic_arguments.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

const char* const kDistModeUsage = "%dist_mode [-e|-d]";

CellOutcome dist_mode(MagicCall& call) {
  MagicArguments arguments(call.arguments, kDistModeUsage);
  const bool enable = arguments.take_flag("-e", "--enable"), disable = arguments.take_flag("-d", "--disable");
  if (arguments.rest_word() || (enable && disable))
    throw UsageError(std::string("one of -e and -d, or neither; usage: ") + kDistModeUsage);
  if (enable || disable) {
    call.session.distributed = enable;
    call.session.target.reset();
  }
  const bool on = call.session.distributed;
  std::string text = on ? "on: cells that name no ranks run on all" : "off: cells that name no ranks run on rank 0";
  if (call.session.target) text += "; %rank has chosen " + call.session.target->str() + " for now";
  call.session.message(text, {{"distributed", on}});
  return {};
}

const RegisterMagic kDistMode(
    {.name = "dist_mode",
     .usage = kDistModeUsage,
     .summary = "cells that name no ranks go to all (on), or to rank 0 (off)",
     .help =
         "-e, --enable   on (as at the start)\n-d, --disable  off\nNeither: says which. Either ends a choice of %rank.",
     .line = dist_mode,
     .cell = {},
     .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
