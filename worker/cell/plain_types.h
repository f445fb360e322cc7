// Types in the names of functions, as people write them: what a library spells out for its linker says nothing to a
// reader of a stack.
#pragma once
#include <string>

namespace lockstep::worker {

/// `nlohmann::json_abi_v3_11_2::basic_json<…>` becomes `nlohmann::json`, `std::__cxx11::basic_string<char, …>` becomes
/// `std::string`, and versioned namespaces of these libraries go. Other text stays.
std::string plain_types(std::string name);

}  // namespace lockstep::worker
