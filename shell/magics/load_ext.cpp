// %load_ext does nothing: notebooks for other tools begin with it.
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome load_ext(MagicCall& call) {
  call.session.message("nothing needs loading here" + (call.arguments.empty() ? "" : " for " + call.arguments) +
                       ": every magic is there (%help lists them)");
  return {};
}

const RegisterMagic kLoadExt({.name = "load_ext",
                              .summary = "accepted for notebooks of other tools; nothing needs loading",
                              .takes = {"[NAME]"},
                              .line = load_ext,
                              .verbatim = true,
                              .in_sessions = true});

}  // namespace
}  // namespace lockstep::shell
