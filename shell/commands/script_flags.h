// Adds the options of commands that run the cells of files: what the run shows and writes.
#pragma once
#include <CLI/CLI.hpp>

#include "shell/commands/script_run.h"

namespace lockstep::shell {

/// Adds --json, --junit, --write, --show-code, --answers and --keep-going to `app`; parsing fills `options`, which must
/// live as long as `app`.
void add_script_options(CLI::App& app, RunOptions& options);

/// Throws UsageError where the options do not fit the files.
void check_script_options(const RunOptions& options);

}  // namespace lockstep::shell
