#include "compiler/objects/symbol_table.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace lockstep::compiler {

namespace {

template <typename T>
std::vector<T> read_table(const std::string& elf, uint64_t offset, size_t count) {
  std::vector<T> table(count);
  if (count != 0) std::memcpy(table.data(), elf.data() + offset, count * sizeof(T));
  return table;
}

template <typename T>
std::string bytes_of(const std::vector<T>& table) {
  return {reinterpret_cast<const char*>(table.data()), table.size() * sizeof(T)};
}

bool is_definition(const Elf64_Sym& symbol) {
  const auto type = ELF64_ST_TYPE(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_OBJECT || type == STT_TLS);
}

}  // namespace

void keep_definitions(std::string& elf) {
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof header);
  auto sections = read_table<Elf64_Shdr>(elf, header.e_shoff, header.e_shnum);
  const auto found = std::find_if(sections.begin(), sections.end(),
                                  [](const Elf64_Shdr& section) { return section.sh_type == SHT_SYMTAB; });
  if (found == sections.end()) return;
  Elf64_Shdr& table = *found;
  Elf64_Shdr& strings = sections.at(table.sh_link);

  // The linker puts local symbols first, and they stay first.
  std::vector<Elf64_Sym> kept(1);
  std::string names(1, '\0');
  for (Elf64_Sym symbol : read_table<Elf64_Sym>(elf, table.sh_offset, table.sh_size / sizeof(Elf64_Sym))) {
    if (!is_definition(symbol)) continue;
    const char* name = elf.data() + strings.sh_offset + symbol.st_name;
    symbol.st_name = static_cast<Elf64_Word>(names.size());
    names.append(name, std::strlen(name) + 1);
    kept.push_back(symbol);
  }
  table.sh_info = static_cast<Elf64_Word>(std::count_if(
      kept.begin(), kept.end(), [](const Elf64_Sym& s) { return ELF64_ST_BIND(s.st_info) == STB_LOCAL; }));

  // Sections that are loaded are before the table and keep their offsets; those after it move up.
  std::vector<Elf64_Shdr*> after;
  for (Elf64_Shdr& section : sections)
    if (section.sh_offset >= table.sh_offset && section.sh_type != SHT_NULL) after.push_back(&section);
  std::sort(after.begin(), after.end(),
            [](const Elf64_Shdr* a, const Elf64_Shdr* b) { return a->sh_offset < b->sh_offset; });
  std::string result = elf.substr(0, table.sh_offset);
  const auto align = [&result](uint64_t to) { result.resize((result.size() + to - 1) / to * to); };
  for (Elf64_Shdr* section : after) {
    std::string content = section == &table     ? bytes_of(kept)
                          : section == &strings ? names
                                                : elf.substr(section->sh_offset, section->sh_size);
    align(std::max<uint64_t>(section->sh_addralign, 1));
    section->sh_offset = result.size();
    section->sh_size = content.size();
    result += content;
  }
  align(alignof(Elf64_Shdr));
  header.e_shoff = result.size();
  std::memcpy(result.data(), &header, sizeof header);
  elf = result + bytes_of(sections);
}

}  // namespace lockstep::compiler
