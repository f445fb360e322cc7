#include "worker/cell/line_table.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>

#include <algorithm>
#include <cstdlib>

#include "protocol/descriptor.h"

namespace lockstep::worker {

struct LineTable::Impl {
  struct Symbol {
    uint64_t start, size;
    std::string name;
  };

  Descriptor file;
  Elf* elf = nullptr;
  Dwarf* dwarf = nullptr;
  std::vector<Symbol> symbols;  // by start

  void read_symbols() {
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf, section));) {
      GElf_Shdr header;
      if (!gelf_getshdr(section, &header) || header.sh_type != SHT_SYMTAB || header.sh_entsize == 0) continue;
      Elf_Data* data = elf_getdata(section, nullptr);
      for (size_t i = 0; data && i < header.sh_size / header.sh_entsize; ++i) {
        GElf_Sym symbol;
        if (!gelf_getsym(data, static_cast<int>(i), &symbol) || GELF_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
        const char* name = elf_strptr(elf, header.sh_link, symbol.st_name);
        if (name && symbol.st_shndx != SHN_UNDEF) symbols.push_back({symbol.st_value, symbol.st_size, name});
      }
    }
    std::sort(symbols.begin(), symbols.end(), [](const Symbol& a, const Symbol& b) { return a.start < b.start; });
  }

  const Symbol* find(uint64_t address) const {
    auto after = std::upper_bound(symbols.begin(), symbols.end(), address,
                                  [](uint64_t a, const Symbol& symbol) { return a < symbol.start; });
    if (after == symbols.begin()) return nullptr;
    const Symbol& symbol = *--after;
    return address < symbol.start + std::max<uint64_t>(symbol.size, 1) ? &symbol : nullptr;
  }
};

namespace {

std::string die_name(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  for (const unsigned kind : {DW_AT_linkage_name, DW_AT_name})
    if (dwarf_attr_integrate(die, kind, &attribute))
      if (const char* name = dwarf_formstring(&attribute)) return name;
  return {};
}

int attribute_number(Dwarf_Die* die, unsigned kind) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  if (!dwarf_attr(die, kind, &attribute) || dwarf_formudata(&attribute, &value) != 0) return 0;
  return static_cast<int>(value);
}

}  // namespace

LineTable::LineTable(const std::string& path) : impl_(std::make_unique<Impl>()) {
  elf_version(EV_CURRENT);
  impl_->file = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!impl_->file) return;
  impl_->elf = elf_begin(impl_->file.get(), ELF_C_READ_MMAP, nullptr);
  if (!impl_->elf) return;
  impl_->read_symbols();
  impl_->dwarf = dwarf_begin_elf(impl_->elf, DWARF_C_READ, nullptr);
}

LineTable::~LineTable() {
  if (impl_->dwarf) dwarf_end(impl_->dwarf);
  if (impl_->elf) elf_end(impl_->elf);
}

std::vector<SourcePlace> LineTable::lookup(uint64_t address) const {
  std::vector<SourcePlace> places;
  if (!impl_->dwarf) return places;
  // Clang writes no .debug_aranges, so the units are asked one by one; a cell has one or two.
  Dwarf_Off offset = 0, next = 0;
  size_t header_size = 0;
  for (; dwarf_nextcu(impl_->dwarf, offset, &next, &header_size, nullptr, nullptr, nullptr) == 0; offset = next) {
    Dwarf_Die unit;
    if (!dwarf_offdie(impl_->dwarf, offset + header_size, &unit) || dwarf_haspc(&unit, address) <= 0) continue;
    SourcePlace place;
    if (Dwarf_Line* line = dwarf_getsrc_die(&unit, address)) {
      if (const char* file = dwarf_linesrc(line, nullptr, nullptr)) place.file = file;
      dwarf_lineno(line, &place.line);
    }
    Dwarf_Files* files = nullptr;
    dwarf_getsrcfiles(&unit, &files, nullptr);
    Dwarf_Die* scopes = nullptr;
    const int count = dwarf_getscopes(&unit, address, &scopes);
    for (int i = 0; i < count; ++i) {
      const int tag = dwarf_tag(&scopes[i]);
      if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
      place.function = die_name(&scopes[i]);
      place.inlined = tag == DW_TAG_inlined_subroutine;
      places.push_back(place);
      if (!place.inlined) break;
      place = {};
      if (const char* file =
              files ? dwarf_filesrc(files, attribute_number(&scopes[i], DW_AT_call_file), nullptr, nullptr) : nullptr)
        place.file = file;
      place.line = attribute_number(&scopes[i], DW_AT_call_line);
    }
    std::free(scopes);
    if (places.empty() || places.back().inlined) places.push_back(place);
    places.back().inlined = false;
    break;
  }
  return places;
}

std::string LineTable::symbol(uint64_t address) const {
  const auto* symbol = impl_->find(address);
  return symbol ? symbol->name : "";
}

uint64_t LineTable::symbol_start(uint64_t address) const {
  const auto* symbol = impl_->find(address);
  return symbol ? symbol->start : 0;
}

}  // namespace lockstep::worker
