// Makes a shared object of an object file: directly where that is simple, else with lld in this process.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::compiler {

/// Links the relocatable `object` into a shared object. Redirects descriptor 1 of the process meanwhile,
/// so nothing else may write to it. Throws std::runtime_error with lld's message.
std::string link_shared(std::string_view object);

}  // namespace lockstep::compiler
