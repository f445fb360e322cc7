#include "compiler/objects/elf_file.h"

#include <cstring>
#include <utility>

namespace lockstep::compiler {

namespace {

void align(std::string& bytes, uint64_t to) { bytes.resize((bytes.size() + to - 1) / to * to); }

}  // namespace

ElfFile::ElfFile(std::span<const Elf64_Phdr> segments) : bytes_(sizeof(Elf64_Ehdr), '\0'), segments_(segments.size()) {
  bytes_.append(reinterpret_cast<const char*>(segments.data()), segments.size_bytes());
}

void ElfFile::add(std::string_view name, Elf64_Shdr header, std::string_view bytes) {
  if ((header.sh_flags & SHF_ALLOC) != 0) {
    bytes_.resize(header.sh_offset);
  } else {
    align(bytes_, header.sh_addralign);
    header.sh_offset = bytes_.size();
    header.sh_size = bytes.size();
  }
  header.sh_name = static_cast<Elf64_Word>(names_.size());
  names_.append(name).push_back('\0');
  headers_.push_back(header);
  bytes_ += bytes;
}

std::string ElfFile::finish(std::string_view identity) && {
  Elf64_Shdr strings = {};
  strings.sh_type = SHT_STRTAB;
  strings.sh_addralign = 1;
  std::string names = names_ + ".shstrtab";  // its own name is in it
  names.push_back('\0');
  add(".shstrtab", strings, names);
  align(bytes_, alignof(Elf64_Shdr));

  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, identity.data(), EI_NIDENT);
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_phoff = header.e_ehsize = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = static_cast<Elf64_Half>(segments_);
  header.e_shoff = bytes_.size();
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = static_cast<Elf64_Half>(headers_.size());
  header.e_shstrndx = static_cast<Elf64_Half>(headers_.size() - 1);
  std::memcpy(bytes_.data(), &header, sizeof header);
  bytes_.append(reinterpret_cast<const char*>(headers_.data()), headers_.size() * sizeof(Elf64_Shdr));
  return std::move(bytes_);
}

}  // namespace lockstep::compiler
