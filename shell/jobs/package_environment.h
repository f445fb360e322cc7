// Lets processes of a Python job find the package, without a change to their script.
#pragma once
#include <map>
#include <string>

namespace lockstep::shell {

/// Adds the package that lies beside this program: in a build folder. An installed wheel comes before it.
void add_package(std::map<std::string, std::string>& environment);

}  // namespace lockstep::shell
