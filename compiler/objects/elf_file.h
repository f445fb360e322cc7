// A shared object's file (ELF64, x86-64), put together section by section.
#pragma once
#include <elf.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::compiler {

class ElfFile {
 public:
  explicit ElfFile(std::span<const Elf64_Phdr> segments);

  /// Adds a section. One that is loaded (SHF_ALLOC) stands at the offset that `header` names, which is not before the end
  /// of the section before it. Others follow, aligned. What `header` has of its name, and of the place and size of a
  /// section that is not loaded, is filled in.
  void add(std::string_view name, Elf64_Shdr header, std::string_view bytes);
  /// The number of the section that is added next, by which others refer to it.
  uint32_t next_index() const { return static_cast<uint32_t>(headers_.size()); }

  /// Adds the names and headers of all sections. `identity` is the file's e_ident.
  std::string finish(std::string_view identity) &&;

 private:
  std::string bytes_;
  size_t segments_;
  std::string names_{'\0'};
  std::vector<Elf64_Shdr> headers_ = std::vector<Elf64_Shdr>(1);
};

}  // namespace lockstep::compiler
