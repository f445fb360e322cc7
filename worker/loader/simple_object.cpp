#include "worker/loader/simple_object.h"

#include <array>
#include <cstring>
#include <span>

namespace lockstep::worker {
namespace {

struct NotSimple {};

void require_simple(bool holds) {
  if (!holds) throw NotSimple();
}

/// Copies: the bytes come out of a message and need not be aligned.
template <typename T>
T value_in(std::string_view bytes, uint64_t offset) {
  require_simple(offset <= bytes.size() && bytes.size() - offset >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string_view part_of(std::string_view bytes, uint64_t offset, uint64_t size) {
  require_simple(offset <= bytes.size() && size <= bytes.size() - offset);
  return bytes.substr(offset, size);
}

template <typename T>
std::vector<T> table_in(std::string_view bytes, uint64_t offset, uint64_t size) {
  require_simple(size % sizeof(T) == 0);
  const std::string_view found = part_of(bytes, offset, size);
  std::vector<T> table(size / sizeof(T));
  if (!table.empty()) std::memcpy(table.data(), found.data(), size);
  return table;
}

class SimpleObjectReader {
 public:
  explicit SimpleObjectReader(std::string_view bytes) : bytes_(bytes) {}

  SimpleObject read() {
    read_segments();
    read_dynamic();
    read_functions();
    check_symbols();
    check_relocations();
    return std::move(object_);
  }

 private:
  void read_segments();
  void read_dynamic();
  void read_functions();
  void check_symbols() const;
  void check_relocations() const;

  /// Whether the object has memory there that is written.
  bool in_data(uint64_t address, uint64_t size) const {
    const Elf64_Phdr& data = object_.data;
    return address >= data.p_vaddr && address - data.p_vaddr <= data.p_memsz &&
           data.p_memsz - (address - data.p_vaddr) >= size;
  }

  std::string_view bytes_, code_;
  Elf64_Phdr dynamic_ = {}, unwind_ = {};
  SimpleObject object_;
};

void SimpleObjectReader::read_segments() {
  const auto header = value_in<Elf64_Ehdr>(bytes_, 0);
  require_simple(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
                 header.e_ident[EI_DATA] == ELFDATA2LSB && header.e_type == ET_DYN && header.e_machine == EM_X86_64 &&
                 header.e_phentsize == sizeof(Elf64_Phdr));
  // Others read them in memory.
  const uint64_t segments_end = header.e_phoff + uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
  std::vector<Elf64_Phdr> loaded;
  for (const auto& segment :
       table_in<Elf64_Phdr>(bytes_, header.e_phoff, uint64_t{header.e_phnum} * sizeof(Elf64_Phdr))) {
    switch (segment.p_type) {
      case PT_LOAD:
        loaded.push_back(segment);
        break;
      case PT_DYNAMIC:
        dynamic_ = segment;
        break;
      case PT_GNU_EH_FRAME:
        unwind_ = segment;
        break;
      case PT_GNU_STACK:
        require_simple((segment.p_flags & PF_X) == 0);
        break;
      default:
        require_simple(segment.p_type == PT_NULL);
    }
  }
  require_simple(loaded.size() == 2 && loaded[0].p_flags == (PF_R | PF_X) && loaded[1].p_flags == (PF_R | PF_W));
  const Elf64_Phdr &code = object_.code = loaded[0], &data = object_.data = loaded[1];
  constexpr uint64_t kMost = 1 << 30;  // so that no sum overflows
  require_simple(code.p_offset == 0 && code.p_vaddr == 0 && code.p_memsz == code.p_filesz && code.p_memsz < kMost &&
                 segments_end <= code.p_filesz);
  require_simple(code.p_align <= kMappedPage && data.p_align <= kMappedPage);
  require_simple(data.p_vaddr < kMost && data.p_memsz < kMost && data.p_filesz <= data.p_memsz);
  require_simple(page_floor(data.p_vaddr) >= page_ceiling(code.p_memsz) &&
                 data.p_offset % kMappedPage == data.p_vaddr % kMappedPage);
  code_ = part_of(bytes_, 0, code.p_filesz);
  part_of(bytes_, data.p_offset, data.p_filesz);
  object_.size = page_ceiling(data.p_vaddr + data.p_memsz);
}

void SimpleObjectReader::read_dynamic() {
  const Elf64_Phdr& data = object_.data;
  require_simple(dynamic_.p_type == PT_DYNAMIC && in_data(dynamic_.p_vaddr, dynamic_.p_filesz));
  require_simple(dynamic_.p_vaddr - data.p_vaddr == dynamic_.p_offset - data.p_offset);
  object_.dynamic = dynamic_.p_vaddr;
  uint64_t symbols = 0, names = 0, names_size = 0, relocations = 0, relocations_size = 0;
  for (const auto& entry : table_in<Elf64_Dyn>(bytes_, dynamic_.p_offset, dynamic_.p_filesz)) {
    if (entry.d_tag == DT_NULL) break;
    switch (entry.d_tag) {
      case DT_SYMTAB:
        symbols = entry.d_un.d_ptr;
        break;
      case DT_STRTAB:
        names = entry.d_un.d_ptr;
        break;
      case DT_STRSZ:
        names_size = entry.d_un.d_val;
        break;
      case DT_RELA:
        relocations = entry.d_un.d_ptr;
        break;
      case DT_RELASZ:
        relocations_size = entry.d_un.d_val;
        break;
      case DT_SYMENT:
        require_simple(entry.d_un.d_val == sizeof(Elf64_Sym));
        break;
      case DT_RELAENT:
        require_simple(entry.d_un.d_val == sizeof(Elf64_Rela));
        break;
      case DT_FLAGS_1:
        require_simple(entry.d_un.d_val == DF_1_NOW);
        break;
      default:
        require_simple(entry.d_tag == DT_GNU_HASH || entry.d_tag == DT_RELACOUNT);
    }
  }
  // The symbol table does not say where it ends; in these objects its names follow.
  require_simple(symbols != 0 && names > symbols);
  object_.symbols = table_in<Elf64_Sym>(code_, symbols, names - symbols);
  object_.names = part_of(code_, names, names_size);
  object_.names_address = names;
  require_simple(!object_.names.empty() && object_.names.back() == '\0');
  object_.relocations = table_in<Elf64_Rela>(code_, relocations, relocations_size);
}

/// Reads the sorted table of functions. Source: Linux Standard Base 5.0, Core, 10.6.2.
void SimpleObjectReader::read_functions() {
  if (unwind_.p_type != PT_GNU_EH_FRAME) return;
  const uint64_t table = unwind_.p_vaddr;
  constexpr uint32_t kForm = 0x3b031b01;  // version 1; addresses relative to themselves, a count, entries to the table
  require_simple(value_in<uint32_t>(code_, table) == kForm);
  const auto count = value_in<uint32_t>(code_, table + 8);
  for (const auto& entry :
       table_in<std::array<int32_t, 2>>(code_, table + 12, uint64_t{count} * sizeof(std::array<int32_t, 2>))) {
    const auto begin = table + static_cast<uint64_t>(int64_t{entry[0]});
    const auto description = table + static_cast<uint64_t>(int64_t{entry[1]});
    require_simple(begin < code_.size() && description < code_.size());
    require_simple(object_.functions.empty() || object_.functions.back().begin <= begin);
    object_.functions.push_back({begin, description});
  }
}

void SimpleObjectReader::check_symbols() const {
  for (const Elf64_Sym& symbol : std::span(object_.symbols).subspan(1)) {
    const auto binding = ELF64_ST_BIND(symbol.st_info), type = ELF64_ST_TYPE(symbol.st_info);
    require_simple(symbol.st_name < object_.names.size() && symbol.st_shndx < SHN_LORESERVE);
    require_simple(binding == STB_GLOBAL || binding == STB_WEAK);
    require_simple(type == STT_NOTYPE || type == STT_OBJECT || type == STT_FUNC);
    require_simple(ELF64_ST_VISIBILITY(symbol.st_other) == STV_DEFAULT);
    require_simple(symbol.st_shndx == SHN_UNDEF || symbol.st_value < object_.size);
  }
}

void SimpleObjectReader::check_relocations() const {
  for (const Elf64_Rela& relocation : object_.relocations) {
    const auto type = ELF64_R_TYPE(relocation.r_info);
    const auto symbol = ELF64_R_SYM(relocation.r_info);
    require_simple(in_data(relocation.r_offset, sizeof(uint64_t)));
    if (type == R_X86_64_RELATIVE) continue;
    require_simple(type == R_X86_64_64 || type == R_X86_64_GLOB_DAT || type == R_X86_64_JUMP_SLOT);
    require_simple(symbol != 0 && symbol < object_.symbols.size());
  }
}

}  // namespace

std::optional<SimpleObject> read_simple_object(std::string_view bytes) {
  try {
    return SimpleObjectReader(bytes).read();
  } catch (const NotSimple&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::worker
