// Reads an object file that clang has generated: its sections, symbols and relocations.
#pragma once
#include <elf.h>

#include <span>
#include <string_view>
#include <vector>

namespace lockstep::compiler {

/// Thrown where an object has what only a linker knows how to handle, or is damaged.
struct NeedsLinker {};

struct ObjectSection {
  Elf64_Shdr header;
  std::string_view name, bytes;
  std::span<const Elf64_Rela> relocations;
};

struct ObjectSymbol {
  Elf64_Sym entry;
  std::string_view name;
};

/// Holds what a relocatable object has, by its indices. It refers to the object's bytes.
struct RelocatableObject {
  std::string_view identity;  // e_ident
  std::vector<ObjectSection> sections;
  std::vector<ObjectSymbol> symbols;
};

/// Reads `object` (ELF64, x86-64, relocatable); its bytes are aligned to 8. Everything that it returns lies within.
RelocatableObject read_relocatable(std::string_view object);

}  // namespace lockstep::compiler
