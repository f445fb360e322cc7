// Writes the shared object of a simple cell directly, without a linker.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::compiler {

/// Lays out the relocatable `object` (ELF64 for x86-64, position independent) as a shared object. Symbols bind as they
/// do with lld's `-shared -z undefs -z now`. Its symbol table has definitions alone, as after keep_definitions().
/// Returns nothing where the object has what only a linker knows: thread-local variables, constructors, common symbols,
/// indirect functions, or a relocation that clang does not use in the code of cells.
std::optional<std::string> write_shared(std::string_view object);

}  // namespace lockstep::compiler
