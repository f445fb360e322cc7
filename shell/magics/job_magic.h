// What magics do at a prompt over a Python job: inspectors are the package's functions, called with names of Python, and
// what every rank does is asked of the agents, wherever the ranks are.
#pragma once
#include <vector>

#include "shell/scripts/magic.h"
#include "shell/session/session_core.h"

namespace lockstep::shell {

/// An option of a magic that is an argument of the function: `--batch-size 4` is `batch_size=4`.
struct PythonOption {
  const char* name;
  enum Kind { flag, number, text } kind;
};

/// Calls `lockstep.FUNCTION(EXPR, name="EXPR", …)` for each expression (without one where `expressions` is false) on all
/// ranks, which must have stopped, or on those of --ranks. Its findings are the cell's.
CellOutcome run_package_inspector(MagicCall& call, const char* function, const std::vector<PythonOption>& options,
                                  bool expressions = true);

/// As Python spells it.
std::string python_string(const std::string& text);

CellOutcome hang_of_job(MagicCall& call);
CellOutcome stack_of_job(MagicCall& call);
CellOutcome collectives_of_job(MagicCall& call);
CellOutcome memory_of_job(MagicCall& call);
CellOutcome abort_of_job(MagicCall& call);
CellOutcome nan_of_job(MagicCall& call);

}  // namespace lockstep::shell
