// The symbol table of a cell's object, which debuggers and stack traces read, without what they never ask for.
#pragma once
#include <string>

namespace lockstep::compiler {

/// Leaves functions and variables that the shared object `elf` (ELF64, little endian) defines in its .symtab. Names of
/// what it takes from elsewhere, which .dynsym has as well, and the assembler's own marks go: a tenth of an object of
/// much LibTorch.
void keep_definitions(std::string& elf);

}  // namespace lockstep::compiler
