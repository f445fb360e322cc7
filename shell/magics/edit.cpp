// %edit opens a cell in an editor. The terminal does it, since the text comes back to its prompt; this has its help.
#include "protocol/error.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {
namespace {

CellOutcome edit(MagicCall&) {
  throw UsageError("%edit opens an editor from the prompt of a terminal, alone in its cell; there is none here");
}

const RegisterMagic kEdit({.name = "edit",
                           .summary = "opens a cell in $VISUAL or $EDITOR; what is saved comes to the prompt",
                           .help = "Enter then runs the text. F2 opens the "
                                   "text that is being typed.",
                           .takes = {{"[CELL]", "its number; without it the last one"}},
                           .line = edit});

}  // namespace
}  // namespace lockstep::shell
