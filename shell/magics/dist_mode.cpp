// %dist_mode decides whether cells that name no ranks go to all of them.
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome dist_mode(MagicCall& call) {
  const bool enable = call.given.has("-e");
  if (enable || call.given.has("-d")) {
    call.session.settings().distributed = enable;
    call.session.settings().target.reset();
  }
  const bool on = call.session.settings().distributed;
  std::string text = on ? "on: cells that name no ranks run on all" : "off: cells that name no ranks run on rank 0";
  if (const auto& target = call.session.settings().target) text += "; %rank has chosen " + target->str() + " for now";
  call.session.message(text, {{"distributed", on}});
  return {};
}

const RegisterMagic kDistMode({.name = "dist_mode",
                               .summary = "cells that name no ranks go to all (on), or to rank 0 (off)",
                               .help = "Neither: says which. Either ends a choice of %rank.",
                               .takes = {{"-e,--enable", "on (as at the start)"}, {"|-d,--disable", "off"}},
                               .line = dist_mode,
                               .in_jobs = true});

}  // namespace
}  // namespace lockstep::shell
