// Whether this machine has a processor that nothing else wants.
#pragma once

namespace lockstep::compiler {

/// Returns whether fewer threads are ready to run on this machine than this process may use processors, besides the calling
/// one. True where the system does not say.
bool has_idle_processor();

}  // namespace lockstep::compiler
