// Lists shared objects that the dynamic loader has not loaded for debuggers, like those of another namespace (dlmopen):
// gdb finds them in the loader's list of lists (<link.h>, r_debug_extended) when it attaches, and in a core file.
#pragma once
#include <link.h>

#include <cstdint>
#include <string>

namespace lockstep::worker {

/// Whether the C library has that list (since 2.35).
bool has_debugger_list();

/// Whether a debugger is attached to this process. It would not notice an object that is added now.
bool is_debugged();

/// Adds the object in the file `path`, loaded at `base`, whose dynamic section is at `dynamic`. One thread adds and
/// removes objects.
link_map* add_to_debugger_list(const std::string& path, uintptr_t base, uintptr_t dynamic);
/// Takes the object out again.
void remove_from_debugger_list(link_map* object);

}  // namespace lockstep::worker
