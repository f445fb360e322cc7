// Reads the shared object of a cell, and says whether it is one that needs no dynamic loader: two segments, relocations
// of four kinds, no thread-local variables, no constructors, no libraries of its own. compiler/objects/shared_object.h
// writes such objects; those that a linker has made, and damaged ones, are not simple.
#pragma once
#include <elf.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep::worker {

/// The contents of the file. Addresses are relative to where the object is loaded, and are those of the file up to the
/// end of `code`.
struct SimpleObject {
  struct Function {
    uint64_t begin, description;  // addresses, of its FDE too
  };

  Elf64_Phdr code, data;
  uint64_t size = 0;  // of its memory, in whole pages
  uint64_t dynamic = 0;  // address of its dynamic section
  std::string_view names;  // ends with '\0'; refers to the bytes that were read
  uint64_t names_address = 0;
  std::vector<Elf64_Sym> symbols;
  std::vector<Elf64_Rela> relocations;
  std::vector<Function> functions;  // that exceptions can pass, by address
};

constexpr uint64_t kMappedPage = 4096;
constexpr uint64_t page_floor(uint64_t address) { return address & ~(kMappedPage - 1); }
constexpr uint64_t page_ceiling(uint64_t address) { return page_floor(address + kMappedPage - 1); }

/// Returns nothing for other objects. All parts of the result lie within `bytes` and within the object's memory.
std::optional<SimpleObject> read_simple_object(std::string_view bytes);

}  // namespace lockstep::worker
