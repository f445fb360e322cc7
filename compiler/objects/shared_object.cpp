#include "compiler/objects/shared_object.h"

#include <elf.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/Compression.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "compiler/objects/elf_file.h"
#include "compiler/objects/gnu_hash.h"
#include "compiler/objects/relocatable_object.h"
#include "compiler/objects/unwind_table.h"

namespace lockstep::compiler {

namespace {

template <typename T>
std::string_view bytes_of(std::span<const T> table) {
  return {reinterpret_cast<const char*>(table.data()), table.size_bytes()};
}

// The sections of the shared object, in the order of their addresses. One segment has those up to kText, the other one
// those up to kBss; sections for debuggers follow, and are not loaded.
enum Output {
  kHash,
  kDynamicSymbols,
  kDynamicNames,
  kRelocations,
  kUnwindTable,
  kConstants,
  kUnwind,
  kText,
  kCalls,
  kDynamic,
  kPointers,
  kData,
  kBss,
  kLoaded,               // the number of those that are
  kForDebuggers = kLoaded  // each section by itself
};

struct OutputKind {
  const char* name;
  uint32_t type;
  uint64_t flags = SHF_ALLOC;
  int link = -1;  // of Output
  uint64_t entry_size = 0;
};

constexpr std::array<OutputKind, kLoaded> kKinds = {{
    {".gnu.hash", SHT_GNU_HASH, SHF_ALLOC, kDynamicSymbols},
    {".dynsym", SHT_DYNSYM, SHF_ALLOC, kDynamicNames, sizeof(Elf64_Sym)},
    {".dynstr", SHT_STRTAB},
    {".rela.dyn", SHT_RELA, SHF_ALLOC, kDynamicSymbols, sizeof(Elf64_Rela)},
    {".eh_frame_hdr", SHT_PROGBITS},
    {".rodata", SHT_PROGBITS},
    {".eh_frame", SHT_PROGBITS},
    {".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR},
    {".plt", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR},
    {".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, kDynamicNames, sizeof(Elf64_Dyn)},
    {".got", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE},
    {".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE},
    {".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE},
}};
constexpr uint64_t kPage = 4096;
constexpr std::string_view kCall("\xff\x25\0\0\0\0\xcc\xcc", 8);  // jmp *pointer(%rip)
constexpr size_t kSegments = 5;
constexpr size_t kWorthCompressing = 4096;  // of a section for debuggers: below, it costs more than it saves

struct Section : ObjectSection {
  int output = -1;      // of Output; -1 if it is dropped
  uint64_t offset = 0;  // in the output section
};

struct Symbol : ObjectSymbol {
  bool by_name = false;  // the dynamic loader binds it: an earlier definition of that name comes first
  bool is_used = false;
  uint32_t dynamic = 0;  // index in .dynsym
  int64_t pointer = -1;  // index in .got
  int64_t call = -1;     // index in .plt
};

struct OutputSection {
  std::string bytes;
  uint64_t size = 0;  // kBss has no bytes
  uint64_t alignment = 8;
  uint64_t address = 0, offset = 0;
};

class Writer {
 public:
  explicit Writer(std::string_view object);

  std::string write() {
    place_sections();
    find_references();
    order_dynamic_symbols();
    size_tables();
    place_outputs();
    relocate();
    fill_tables();
    return assemble();
  }

 private:
  void place_sections();
  void find_references();
  void order_dynamic_symbols();
  void size_tables();
  void place_outputs();
  void relocate();
  void fill_tables();
  std::string assemble();
  void add_debug_section(ElfFile& file, const Section& section) const;
  void add_symbol_table(ElfFile& file) const;

  OutputSection& output(Output which) { return outputs_[which]; }
  uint64_t address_of(const Section& section) const {
    return (section.output < kLoaded ? outputs_[static_cast<size_t>(section.output)].address : 0) + section.offset;
  }
  const Section& section_of(const Symbol& symbol) const {
    const size_t index = symbol.entry.st_shndx;
    if (index >= sections_.size() || sections_[index].output < 0) throw NeedsLinker();
    return sections_[index];
  }
  uint64_t address_of(const Symbol& symbol) const { return address_of(section_of(symbol)) + symbol.entry.st_value; }
  bool is_defined(const Symbol& symbol) const { return symbol.entry.st_shndx != SHN_UNDEF; }
  uint64_t pointer_address(const Symbol& symbol) {
    return output(kPointers).address + static_cast<uint64_t>(symbol.pointer) * 8;
  }
  void need_pointer(Symbol& symbol) {
    if (symbol.pointer < 0) symbol.pointer = static_cast<int64_t>(pointers_++);
  }
  /// The loader writes the address of `symbol` plus `addend` to `place`.
  void bind(const Symbol& symbol, uint64_t place, int64_t addend, uint32_t type) {
    if (symbol.by_name)
      bound_.push_back({place, ELF64_R_INFO(symbol.dynamic, type), addend});
    else
      relative_.push_back({place, ELF64_R_INFO(0, R_X86_64_RELATIVE),
                           static_cast<int64_t>(address_of(symbol) + static_cast<uint64_t>(addend))});
  }
  Elf64_Sym placed(const Symbol& symbol) const;

  RelocatableObject object_;
  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
  std::vector<Symbol*> dynamic_;  // undefined ones first, then those of the hash table
  std::vector<Section*> debug_;
  std::array<OutputSection, kLoaded> outputs_;
  std::vector<size_t> functions_;  // in .eh_frame
  std::vector<Elf64_Rela> relative_, bound_;
  size_t pointers_ = 0, calls_ = 0, first_defined_ = 0, written_relocations_ = 0;
};

Writer::Writer(std::string_view object) : object_(read_relocatable(object)) {
  for (const ObjectSection& section : object_.sections) sections_.push_back({section});
  for (const ObjectSymbol& symbol : object_.symbols) symbols_.push_back({symbol});
}

void Writer::place_sections() {
  for (Section& section : sections_) {
    const Elf64_Shdr& header = section.header;
    const bool has_bytes = header.sh_type == SHT_PROGBITS || header.sh_type == SHT_X86_64_UNWIND;
    if ((header.sh_flags & SHF_ALLOC) == 0) {
      if (header.sh_type != SHT_PROGBITS || !section.name.starts_with(".debug_")) continue;
      section.output = kForDebuggers;
      debug_.push_back(&section);
      continue;
    }
    if ((header.sh_flags & (SHF_TLS | SHF_COMPRESSED)) != 0 || (!has_bytes && header.sh_type != SHT_NOBITS))
      throw NeedsLinker();
    const bool unwinds = section.name == ".eh_frame", writable = (header.sh_flags & SHF_WRITE) != 0;
    const Output which = unwinds                                  ? kUnwind
                         : (header.sh_flags & SHF_EXECINSTR) != 0 ? kText
                         : !writable                              ? kConstants
                         : header.sh_type == SHT_NOBITS           ? kBss
                                                                  : kData;
    const uint64_t alignment = std::max<uint64_t>(header.sh_addralign, 1);
    OutputSection& output = outputs_[which];
    if ((header.sh_type == SHT_NOBITS) != (which == kBss) || alignment > kPage || (unwinds && output.size != 0))
      throw NeedsLinker();
    section.output = which;
    section.offset = (output.size + alignment - 1) / alignment * alignment;
    output.alignment = std::max(output.alignment, alignment);
    output.size = section.offset + header.sh_size;
    if (which == kBss) continue;
    output.bytes.resize(section.offset, which == kText ? '\xcc' : '\0');
    output.bytes += section.bytes;
  }
}

void Writer::find_references() {
  for (Symbol& symbol : symbols_) {
    const auto binding = ELF64_ST_BIND(symbol.entry.st_info), type = ELF64_ST_TYPE(symbol.entry.st_info);
    const auto visibility = ELF64_ST_VISIBILITY(symbol.entry.st_other);
    if (binding == STB_LOCAL) continue;
    if ((binding != STB_GLOBAL && binding != STB_WEAK) || type == STT_TLS || type == STT_GNU_IFUNC) throw NeedsLinker();
    if (is_defined(symbol) && symbol.entry.st_shndx >= SHN_LORESERVE) throw NeedsLinker();
    if (visibility == STV_PROTECTED || (!is_defined(symbol) && visibility != STV_DEFAULT)) throw NeedsLinker();
    symbol.by_name = visibility == STV_DEFAULT;
  }
  for (const Section& section : sections_) {
    if (section.output < 0) continue;
    for (const Elf64_Rela& relocation : section.relocations) {
      if (ELF64_R_SYM(relocation.r_info) >= symbols_.size()) throw NeedsLinker();
      Symbol& symbol = symbols_[ELF64_R_SYM(relocation.r_info)];
      const auto type = ELF64_R_TYPE(relocation.r_info);
      const uint64_t width = type == R_X86_64_64 ? 8 : 4;
      if (relocation.r_offset > section.header.sh_size || section.header.sh_size - relocation.r_offset < width)
        throw NeedsLinker();
      if (!symbol.by_name) section_of(symbol);
      if (section.output == kForDebuggers) {
        if ((type != R_X86_64_64 && type != R_X86_64_32) || !is_defined(symbol)) throw NeedsLinker();
        section_of(symbol);
        continue;
      }
      switch (type) {
        case R_X86_64_64:
          if (section.output != kData) throw NeedsLinker();
          break;
        case R_X86_64_PC32:
          if (symbol.by_name) throw NeedsLinker();
          break;
        case R_X86_64_PLT32:
          if (!symbol.by_name) break;
          need_pointer(symbol);
          if (symbol.call < 0) symbol.call = static_cast<int64_t>(calls_++);
          break;
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX:
          need_pointer(symbol);
          break;
        default:
          throw NeedsLinker();
      }
      symbol.is_used = true;
    }
  }
}

void Writer::order_dynamic_symbols() {
  std::vector<Symbol*> defined;
  for (Symbol& symbol : symbols_) {
    if (!symbol.by_name) continue;
    if (is_defined(symbol))
      defined.push_back(&symbol);
    else if (symbol.is_used)
      dynamic_.push_back(&symbol);
  }
  first_defined_ = dynamic_.size() + 1;
  const uint32_t buckets = gnu_hash_buckets(defined.size());
  std::sort(defined.begin(), defined.end(), [buckets](const Symbol* a, const Symbol* b) {
    return gnu_hash(a->name) % buckets < gnu_hash(b->name) % buckets;
  });
  dynamic_.insert(dynamic_.end(), defined.begin(), defined.end());
  for (size_t i = 0; i < dynamic_.size(); ++i) dynamic_[i]->dynamic = static_cast<uint32_t>(i + 1);
  std::vector<uint32_t> hashes;
  for (const Symbol* symbol : defined) hashes.push_back(gnu_hash(symbol->name));
  output(kHash).bytes = gnu_hash_section(hashes, static_cast<uint32_t>(first_defined_));
}

/// A section for debuggers, as it is with SHF_COMPRESSED.
std::string compressed(std::string_view bytes, uint64_t alignment) {
  llvm::SmallVector<uint8_t, 0> packed;
  llvm::compression::zlib::compress(llvm::arrayRefFromStringRef(bytes), packed,
                                    llvm::compression::zlib::BestSpeedCompression);
  const Elf64_Chdr header = {ELFCOMPRESS_ZLIB, 0, bytes.size(), alignment};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(packed.begin(), packed.end());
}

/// Everything but the contents of tables that have addresses.
void Writer::size_tables() {
  OutputSection& unwind = output(kUnwind);
  if (unwind.size != 0) {
    auto functions = function_descriptions(unwind.bytes);
    if (!functions) throw NeedsLinker();
    functions_ = std::move(*functions);
    unwind.bytes.append(4, '\0');  // the end, for readers without the table
    output(kUnwindTable).size = unwind_table_size(functions_.size());
  }
  size_t relocations = pointers_;
  for (const Section& section : sections_)
    if (section.output == kData) relocations += section.relocations.size();
  written_relocations_ = relocations;
  output(kRelocations).size = relocations * sizeof(Elf64_Rela);
  output(kDynamicSymbols).size = (dynamic_.size() + 1) * sizeof(Elf64_Sym);
  std::string& names = output(kDynamicNames).bytes;
  names.assign(1, '\0');
  for (Symbol* symbol : dynamic_) {
    symbol->entry.st_name = static_cast<Elf64_Word>(names.size());
    names.append(symbol->name).push_back('\0');
  }
  for (size_t i = 0; i < calls_; ++i) output(kCalls).bytes += kCall;
  output(kPointers).bytes.assign(pointers_ * 8, '\0');
  constexpr size_t kDynamicEntries = 11;
  output(kDynamic).size = kDynamicEntries * sizeof(Elf64_Dyn);
  for (OutputSection& each : outputs_) each.size = std::max<uint64_t>(each.size, each.bytes.size());
}

void Writer::place_outputs() {
  uint64_t end = sizeof(Elf64_Ehdr) + kSegments * sizeof(Elf64_Phdr);
  uint64_t distance = 0;  // of the addresses of a segment from the offsets in the file
  for (int i = 0; i < kLoaded; ++i) {
    OutputSection& each = outputs_[static_cast<size_t>(i)];
    if (i == kDynamic) distance = kPage;  // the page where both segments meet is mapped twice
    each.offset = end = (end + each.alignment - 1) / each.alignment * each.alignment;
    each.address = each.offset + distance;
    end += each.size;
  }
}

void Writer::relocate() {
  for (const Section& section : sections_) {
    if (section.output < 0 || section.output == kForDebuggers) continue;
    for (const Elf64_Rela& relocation : section.relocations) {
      const Symbol& symbol = symbols_[ELF64_R_SYM(relocation.r_info)];
      const uint64_t place = address_of(section) + relocation.r_offset;
      uint64_t target;
      switch (ELF64_R_TYPE(relocation.r_info)) {
        case R_X86_64_64:
          bind(symbol, place, relocation.r_addend, R_X86_64_64);
          continue;
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX:
          target = pointer_address(symbol);
          break;
        default:  // PC32, PLT32
          target = symbol.call >= 0 ? output(kCalls).address + static_cast<uint64_t>(symbol.call) * kCall.size()
                                    : address_of(symbol);
      }
      const auto distance = static_cast<int64_t>(target + static_cast<uint64_t>(relocation.r_addend) - place);
      const auto value = static_cast<int32_t>(distance);
      if (value != distance) throw NeedsLinker();  // which says what is out of range
      std::string& bytes = outputs_[static_cast<size_t>(section.output)].bytes;
      std::memcpy(bytes.data() + section.offset + relocation.r_offset, &value, sizeof value);
    }
  }
}

Elf64_Sym Writer::placed(const Symbol& symbol) const {
  Elf64_Sym entry = symbol.entry;
  if (!is_defined(symbol)) return entry;
  const Section& section = section_of(symbol);
  entry.st_value = address_of(symbol);
  entry.st_shndx = static_cast<Elf64_Section>(section.output + 1);
  return entry;
}

void Writer::fill_tables() {
  std::string& calls = output(kCalls).bytes;
  for (const Symbol* symbol : dynamic_) {
    if (symbol->call < 0) continue;
    const size_t at = static_cast<size_t>(symbol->call) * kCall.size();
    constexpr size_t kOperand = 2, kNext = 6;
    const auto distance = static_cast<int32_t>(pointer_address(*symbol) - (output(kCalls).address + at + kNext));
    std::memcpy(calls.data() + at + kOperand, &distance, sizeof distance);
  }
  for (const Symbol& symbol : symbols_)
    if (symbol.pointer >= 0) bind(symbol, pointer_address(symbol), 0, R_X86_64_GLOB_DAT);
  const auto relative = relative_.size();
  relative_.insert(relative_.end(), bound_.begin(), bound_.end());
  if (relative_.size() != written_relocations_) throw NeedsLinker();
  output(kRelocations).bytes = bytes_of(std::span<const Elf64_Rela>(relative_));

  std::vector<Elf64_Sym> symbols(1);
  for (const Symbol* symbol : dynamic_) symbols.push_back(placed(*symbol));
  output(kDynamicSymbols).bytes = bytes_of(std::span<const Elf64_Sym>(symbols));

  if (output(kUnwind).size != 0)
    output(kUnwindTable).bytes =
        unwind_table(output(kUnwind).bytes, functions_, output(kUnwind).address, output(kUnwindTable).address);

  const Elf64_Dyn dynamic[] = {{DT_GNU_HASH, {output(kHash).address}},
                               {DT_SYMTAB, {output(kDynamicSymbols).address}},
                               {DT_SYMENT, {sizeof(Elf64_Sym)}},
                               {DT_STRTAB, {output(kDynamicNames).address}},
                               {DT_STRSZ, {output(kDynamicNames).size}},
                               {DT_RELA, {output(kRelocations).address}},
                               {DT_RELASZ, {output(kRelocations).size}},
                               {DT_RELAENT, {sizeof(Elf64_Rela)}},
                               {DT_RELACOUNT, {relative}},
                               {DT_FLAGS_1, {DF_1_NOW}},
                               {DT_NULL, {0}}};
  output(kDynamic).bytes = bytes_of(std::span<const Elf64_Dyn>(dynamic));
}

std::string Writer::assemble() {
  const auto segment = [this](uint32_t type, uint32_t flags, Output first, Output last, uint64_t alignment) {
    const OutputSection &begin = outputs_[first], &end = outputs_[last];
    const uint64_t in_file = (last == kBss ? end.offset : end.offset + end.size) - begin.offset;
    return Elf64_Phdr{
        type,     flags, begin.offset, begin.address, begin.address, in_file, end.address + end.size - begin.address,
        alignment};
  };
  Elf64_Phdr code = segment(PT_LOAD, PF_R | PF_X, kHash, kCalls, kPage);
  code.p_filesz += code.p_offset;  // with the headers
  code.p_memsz += code.p_offset;
  code.p_offset = code.p_vaddr = code.p_paddr = 0;
  const Elf64_Phdr segments[kSegments] = {
      code, segment(PT_LOAD, PF_R | PF_W, kDynamic, kBss, kPage),
      segment(PT_DYNAMIC, PF_R | PF_W, kDynamic, kDynamic, 8),
      segment(functions_.empty() ? PT_NULL : PT_GNU_EH_FRAME, PF_R, kUnwindTable, kUnwindTable, 4),
      Elf64_Phdr{PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 0}};
  ElfFile file(segments);
  for (int i = 0; i < kLoaded; ++i) {
    const OutputSection& each = outputs_[static_cast<size_t>(i)];
    const OutputKind& kind = kKinds[static_cast<size_t>(i)];
    Elf64_Shdr header = {};
    header.sh_type = kind.type;
    header.sh_flags = kind.flags;
    header.sh_addr = each.address;
    header.sh_offset = each.offset;
    header.sh_size = each.size;
    header.sh_addralign = each.alignment;
    header.sh_link = static_cast<Elf64_Word>(kind.link + 1);  // sections are numbered from 1
    header.sh_info = i == kDynamicSymbols ? 1 : 0;            // the first one that is not local
    header.sh_entsize = kind.entry_size;
    file.add(kind.name, header, each.bytes);  // none of .bss
  }
  for (const Section* section : debug_) add_debug_section(file, *section);
  add_symbol_table(file);
  return std::move(file).finish(object_.identity);
}

void Writer::add_debug_section(ElfFile& file, const Section& section) const {
  std::string bytes(section.bytes);
  for (const Elf64_Rela& relocation : section.relocations) {
    const uint64_t value =
        address_of(symbols_[ELF64_R_SYM(relocation.r_info)]) + static_cast<uint64_t>(relocation.r_addend);
    const size_t width = ELF64_R_TYPE(relocation.r_info) == R_X86_64_64 ? 8 : 4;
    if (width == 4 && value > UINT32_MAX) throw NeedsLinker();
    std::memcpy(bytes.data() + relocation.r_offset, &value, width);
  }
  Elf64_Shdr header = {};
  header.sh_type = SHT_PROGBITS;
  header.sh_addralign = std::max<uint64_t>(section.header.sh_addralign, 1);
  if (bytes.size() >= kWorthCompressing) {
    bytes = compressed(bytes, header.sh_addralign);
    header.sh_flags = SHF_COMPRESSED;
    header.sh_addralign = alignof(Elf64_Chdr);
  }
  file.add(section.name, header, bytes);
}

/// Adds what debuggers and stack traces need: definitions, local ones first.
void Writer::add_symbol_table(ElfFile& file) const {
  std::vector<Elf64_Sym> symbols(1);
  std::string names(1, '\0');
  Elf64_Shdr table = {};
  for (const bool local : {true, false}) {
    for (const Symbol& symbol : symbols_) {
      const auto type = ELF64_ST_TYPE(symbol.entry.st_info);
      if ((ELF64_ST_BIND(symbol.entry.st_info) == STB_LOCAL) != local || !is_defined(symbol)) continue;
      if (type != STT_FUNC && type != STT_OBJECT) continue;
      Elf64_Sym entry = placed(symbol);
      entry.st_name = static_cast<Elf64_Word>(names.size());
      names.append(symbol.name).push_back('\0');
      symbols.push_back(entry);
    }
    if (local) table.sh_info = static_cast<Elf64_Word>(symbols.size());
  }
  table.sh_type = SHT_SYMTAB;
  table.sh_addralign = alignof(Elf64_Sym);
  table.sh_entsize = sizeof(Elf64_Sym);
  table.sh_link = file.next_index() + 1;
  file.add(".symtab", table, bytes_of(std::span<const Elf64_Sym>(symbols)));
  Elf64_Shdr strings = {};
  strings.sh_type = SHT_STRTAB;
  strings.sh_addralign = 1;
  file.add(".strtab", strings, names);
}

}  // namespace

std::optional<std::string> write_shared(std::string_view object) {
  try {
    return Writer(object).write();
  } catch (const NeedsLinker&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::compiler
