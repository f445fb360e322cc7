#include "python/cells/needed.h"

#include <elf.h>

#include <cstring>

namespace lockstep::python {
namespace {

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

std::string object_that_needs(const std::vector<std::string>& libraries) {
  // The header, three program headers, the dynamic section, the symbol table with its null symbol, the strings.
  const size_t headers = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
  const size_t dynamic_size = (libraries.size() + 5) * sizeof(Elf64_Dyn);
  const size_t symbols = headers + dynamic_size, strings = symbols + sizeof(Elf64_Sym);
  std::string names(1, '\0'), dynamic;
  for (const std::string& library : libraries) {
    append(dynamic, Elf64_Dyn{.d_tag = DT_NEEDED, .d_un = {.d_val = names.size()}});
    names += library + '\0';
  }
  append(dynamic, Elf64_Dyn{.d_tag = DT_STRTAB, .d_un = {.d_ptr = strings}});
  append(dynamic, Elf64_Dyn{.d_tag = DT_SYMTAB, .d_un = {.d_ptr = symbols}});
  append(dynamic, Elf64_Dyn{.d_tag = DT_STRSZ, .d_un = {.d_val = names.size()}});
  append(dynamic, Elf64_Dyn{.d_tag = DT_SYMENT, .d_un = {.d_val = sizeof(Elf64_Sym)}});
  append(dynamic, Elf64_Dyn{.d_tag = DT_NULL, .d_un = {.d_val = 0}});
  const size_t size = strings + names.size();

  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_phoff = sizeof header;
  header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 3;
  constexpr size_t kPage = 4096;
  // It is writable: the dynamic linker turns offsets in the dynamic section into addresses.
  const Elf64_Phdr load{.p_type = PT_LOAD,
                        .p_flags = PF_R | PF_W,
                        .p_offset = 0,
                        .p_vaddr = 0,
                        .p_paddr = 0,
                        .p_filesz = size,
                        .p_memsz = size,
                        .p_align = kPage};
  Elf64_Phdr section = load;
  section.p_type = PT_DYNAMIC;
  section.p_offset = section.p_vaddr = section.p_paddr = headers;
  section.p_filesz = section.p_memsz = dynamic_size;
  section.p_align = alignof(Elf64_Dyn);
  // Without it the object would want the process's stacks executable, which the C library refuses from 2.41 on.
  Elf64_Phdr stack{};
  stack.p_type = PT_GNU_STACK;
  stack.p_flags = PF_R | PF_W;

  std::string bytes;
  append(bytes, header);
  append(bytes, load);
  append(bytes, section);
  append(bytes, stack);
  bytes += dynamic;
  append(bytes, Elf64_Sym{});
  return bytes + names;
}

}  // namespace lockstep::python
