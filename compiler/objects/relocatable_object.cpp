#include "compiler/objects/relocatable_object.h"

#include <cstdint>

namespace lockstep::compiler {

namespace {

template <typename T>
std::span<const T> table_at(std::string_view bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset || offset % alignof(T) != 0) throw NeedsLinker();
  return {reinterpret_cast<const T*>(bytes.data() + offset), size / sizeof(T)};
}

std::string_view string_at(std::string_view strings, uint32_t at) {
  const size_t end = strings.find('\0', at);
  if (end == std::string_view::npos) throw NeedsLinker();
  return strings.substr(at, end - at);
}

}  // namespace

RelocatableObject read_relocatable(std::string_view object) {
  if (object.size() < sizeof(Elf64_Ehdr)) throw NeedsLinker();
  const Elf64_Ehdr& header = table_at<Elf64_Ehdr>(object, 0, sizeof(Elf64_Ehdr))[0];
  if (header.e_type != ET_REL || header.e_machine != EM_X86_64) throw NeedsLinker();
  const auto headers = table_at<Elf64_Shdr>(object, header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr));
  const auto bytes_of = [&](const Elf64_Shdr& section) {
    if (section.sh_type == SHT_NOBITS) return std::string_view();
    table_at<char>(object, section.sh_offset, section.sh_size);
    return object.substr(section.sh_offset, section.sh_size);
  };
  const auto strings = [&](uint32_t index) {
    if (index >= headers.size()) throw NeedsLinker();  // also where e_shnum can't count the sections
    return bytes_of(headers[index]);
  };
  RelocatableObject read;
  read.identity = object.substr(0, EI_NIDENT);
  const std::string_view names = strings(header.e_shstrndx);
  for (const Elf64_Shdr& each : headers)
    read.sections.push_back({each, string_at(names, each.sh_name), bytes_of(each), {}});
  for (const Elf64_Shdr& each : headers) {
    if (each.sh_type == SHT_RELA && each.sh_info < read.sections.size())
      read.sections[each.sh_info].relocations = table_at<Elf64_Rela>(object, each.sh_offset, each.sh_size);
    if (each.sh_type != SHT_SYMTAB) continue;
    const std::string_view symbol_names = strings(each.sh_link);
    for (const Elf64_Sym& symbol : table_at<Elf64_Sym>(object, each.sh_offset, each.sh_size))
      read.symbols.push_back({symbol, string_at(symbol_names, symbol.st_name)});
  }
  return read;
}

}  // namespace lockstep::compiler
