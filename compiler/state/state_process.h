// A process that holds one state of the compiler and answers the supervisor: compiles a cell (which changes the state),
// or starts a copy of itself that waits for work.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "compiler/process/options.h"
#include "compiler/process/process.h"
#include "compiler/state/cell_compiler.h"

namespace lockstep::compiler {

/// The messages between the supervisor and a state process, beside those of the session:
///   {"do":"copy"}                        → a descriptor and a pid: a copy of the process
///   {"do":"practise"}                    → {"practised":true}, or false: the process can't be used for anything else
///   {"do":"compile","compile":…,"attempt":…} → {"compiled":…,"again":…} and frames
///   {"do":"settle"|"forget"|"names"|…,"request":…} → the answer's header
/// The first message of the first state process is {"ready":{"prelude":…}} or {"failed":"…"}, with
/// {"progress":…}, an encoded CompilerProgress, before.
[[noreturn]] void run_first_state(const Options& options, Descriptor link, pid_t supervisor);

}  // namespace lockstep::compiler
