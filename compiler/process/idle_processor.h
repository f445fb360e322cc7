// Whether this machine has a processor that nothing else wants.
#pragma once

namespace lockstep::compiler {

/// Returns whether no more threads want to run than this machine has processors, the calling one among them. True where the
/// system does not say.
bool has_idle_processor();

}  // namespace lockstep::compiler
