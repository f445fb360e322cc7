// Tells debuggers of shared objects that the dynamic loader has not loaded, as of those of a namespace of their own
// (dlmopen): gdb finds them in its list of lists (<link.h>, r_debug_extended) when it attaches, and in a core file.
#pragma once
#include <link.h>

#include <cstdint>
#include <string>

namespace lockstep::worker {

/// Whether the C library has that list (since 2.35).
bool has_debugger_list();

/// Whether a debugger is attached to this process. It would not notice an object that is added now.
bool is_debugged();

/// Adds the object in the file `path`, loaded at `base`, whose dynamic section is at `dynamic`. Adding and taking out are
/// for one thread.
link_map* add_to_debugger_list(const std::string& path, uintptr_t base, uintptr_t dynamic);
/// Takes it out again.
void remove_from_debugger_list(link_map* object);

}  // namespace lockstep::worker
