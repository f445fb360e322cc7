// Runs magics at a prompt over a Python job: inspectors are the package's functions, called with names of Python, and
// what every rank does is asked of the agents, wherever the ranks are.
#pragma once
#include "shell/magics/inspectors/inspector_magic.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {

/// Calls `lockstep.FUNCTION(EXPR, name="EXPR", …)` for each word (without one where there are none), with the options that
/// were given, on all ranks, which must have stopped, or on those of --ranks. Its findings are the cell's.
CellOutcome run_package_inspector(MagicCall& call, const char* function, InspectorOptions options);
/// Returns what such a magic takes, with words.
MagicDescription package_arguments(InspectorOptions options);

CellOutcome hang_of_job(MagicCall& call);
CellOutcome stack_of_job(MagicCall& call);
CellOutcome collectives_of_job(MagicCall& call);
CellOutcome memory_of_job(MagicCall& call);
CellOutcome abort_of_job(MagicCall& call);
CellOutcome nan_of_job(MagicCall& call);

}  // namespace lockstep::shell
