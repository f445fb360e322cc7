// Reduces the symbol table of a cell's object to what debuggers and stack traces need.
#pragma once
#include <string>

namespace lockstep::compiler {

/// Keeps the functions and variables that the shared object `elf` (ELF64, little endian) defines in its .symtab.
/// Removes undefined symbols, which .dynsym has as well, and symbols of the assembler: a tenth of an object that uses
/// much of LibTorch.
void keep_definitions(std::string& elf);

}  // namespace lockstep::compiler
