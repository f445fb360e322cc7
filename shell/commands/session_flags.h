// Adds the options that every command which starts a session has: -n, --gpu-ids, --backend, limits, arguments of cells.
#pragma once
#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string_view>

#include "shell/processes/session_options.h"

namespace lockstep::shell {

/// Adds them to `app`; parsing fills `options`, which must live as long as `app`. What only the machine can tell (ids
/// of GPUs, memory for that many ranks) is checked by plan_session.
void add_session_options(CLI::App& app, SessionOptions& options);

/// Adds those about the journal alone, which they include.
void add_journal_options(CLI::App& app, SessionOptions& options);

/// Refuses what is beside --resume and not in `allowed`: it would have no effect on a session that is there.
void check_resume_alone(const CLI::App& app, std::initializer_list<std::string_view> allowed);

/// Whether the user said what the session shall be: then it starts before the first prompt, and not with the first
/// cell.
bool asks_for_ranks(const SessionOptions& options);

}  // namespace lockstep::shell
