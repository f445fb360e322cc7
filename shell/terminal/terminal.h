// `lockstep` without a subcommand is the interactive front end. It reads cells, runs them, and draws what comes back;
// while it waits for typing the session serves its ranks.
#pragma once
#include "shell/session/session.h"
#include "shell/terminal/notebook.h"

namespace lockstep::shell {

/// Runs until the end of the input, `exit` or `quit`. Where standard input or output is no terminal, cells come from
/// lines without prompts, and the result is the exit code of the first that fails (as `lockstep run` has them); on a
/// terminal it is 0. `start_now`: the session starts before the first prompt. Throws StartError when it can't,
/// UsageError for bad options.
/// `first`: cells that run before the first prompt.
/// `keeper`: of a detachable session (shell/detached/keeper.h), whose terminal this process has. `make_notebook` is for
/// notebooks that come to it.
int run_terminal(const SessionOptions& options, bool start_now, Descriptor keeper = {},
                 const std::vector<ScriptCell>& first = {}, MakeNotebook make_notebook = nullptr);

/// Runs the prompt over a Python job in the terminal of `lockstep run`, until its user lets the job go on. Its first
/// cell has the number `first_cell`; returns the number of the next. Throws StartError, UsageError.
int64_t run_job_prompt(const SessionOptions& options, int64_t first_cell);

}  // namespace lockstep::shell
