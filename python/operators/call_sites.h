// Which line of the user's Python ran an operator: the innermost frame that belongs neither to torch nor to this
// package. Findings that name an operator name this line.
#pragma once
#include <string>
#include <vector>

namespace lockstep::python {

/// From here on inspectors name lines of Python. `skipped`: folders whose frames are not the user's. `folder`: paths in
/// it are shown relative to it.
void use_python_call_sites(std::vector<std::string> skipped, std::string folder);

/// Whether frames of `file` are the user's: of no skipped folder.
bool is_users(const std::string& file);

}  // namespace lockstep::python
