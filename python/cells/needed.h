// Makes shared objects that only cells see. A rank of a job is the user's process: what cells define must not come in
// front of what the program loads later, so nothing of theirs becomes global (RTLD_GLOBAL), nor do LibTorch's
// libraries, which Python loads without that. Objects find each other by a list of dependencies instead.
#pragma once
#include <string>
#include <vector>

namespace lockstep::python {

/// Returns an ELF object for x86-64 that holds nothing but dependencies (DT_NEEDED), in this order: paths, or names of
/// libraries that are loaded. The dynamic linker looks for each one's symbols in all of them, the first one first.
std::string object_that_needs(const std::vector<std::string>& libraries);

}  // namespace lockstep::python
