// An object file becomes a shared object, with lld inside this process.
#pragma once
#include <string>
#include <string_view>

namespace lockstep::compiler {

/// Links the relocatable `object` into a shared object called `name`. Descriptor 1 of the process is used on the way
/// (its contents before are left alone, nothing else may write to it). Throws std::runtime_error with lld's words.
std::string link_shared(std::string_view object, const std::string& name);

}  // namespace lockstep::compiler
