// Writes types in the names of functions as people do, since the names that a library has for its linker do not help a
// reader of a stack.
#pragma once
#include <string>

namespace lockstep::worker {

/// Makes `nlohmann::json` of `nlohmann::json_abi_v3_11_2::basic_json<…>`, `std::string` of
/// `std::__cxx11::basic_string<char, …>`, and leaves out versioned namespaces of these libraries. Other text stays.
std::string plain_types(std::string name);

}  // namespace lockstep::worker
