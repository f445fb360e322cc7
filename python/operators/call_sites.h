// Finds the line of the user's Python that ran an operator: the innermost frame that belongs neither to torch nor to
// this package. Findings that name an operator name this line.
#pragma once
#include <string>
#include <vector>

namespace lockstep::python {

/// Lets inspectors name lines of Python from here on. `skipped` has folders whose frames are not the user's. Paths in
/// `folder` are shown relative to it.
void use_python_call_sites(std::vector<std::string> skipped, std::string folder);

/// Whether frames of `file` are the user's: of no skipped folder.
bool is_users(const std::string& file);

}  // namespace lockstep::python
