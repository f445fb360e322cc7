#include "worker/loader/object_loader.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "protocol/descriptor.h"
#include "worker/loader/debugger_list.h"

namespace lockstep::worker {
namespace {

bool map_file(uintptr_t address, uint64_t size, int protection, int file, uint64_t offset) {
  return ::mmap(reinterpret_cast<void*>(address), size, protection, MAP_PRIVATE | MAP_FIXED, file,
                static_cast<off_t>(offset)) != MAP_FAILED;
}

/// Maps the segments as the dynamic loader does: what is not written remains the file's.
bool map_object(const std::string& path, const SimpleObject& object, uintptr_t base) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  if (!map_file(base, object.code.p_filesz, PROT_READ | PROT_EXEC, file.get(), 0)) return false;
  const Elf64_Phdr& data = object.data;
  const uint64_t begin = page_floor(data.p_vaddr), file_end = data.p_vaddr + data.p_filesz;
  if (!map_file(base + begin, file_end - begin, PROT_READ | PROT_WRITE, file.get(), page_floor(data.p_offset)))
    return false;
  const uint64_t zeros = page_ceiling(file_end);
  if (data.p_memsz > data.p_filesz) std::memset(reinterpret_cast<void*>(base + file_end), 0, zeros - file_end);
  return zeros >= object.size ||
         ::mprotect(reinterpret_cast<void*>(base + zeros), object.size - zeros, PROT_READ | PROT_WRITE) == 0;
}

void relocate(const SimpleObject& object, uintptr_t base, const std::vector<uintptr_t>& addresses) {
  for (const Elf64_Rela& relocation : object.relocations) {
    const uintptr_t target =
        ELF64_R_TYPE(relocation.r_info) == R_X86_64_RELATIVE ? base : addresses[ELF64_R_SYM(relocation.r_info)];
    const uintptr_t value = target + static_cast<uintptr_t>(relocation.r_addend);
    std::memcpy(reinterpret_cast<void*>(base + relocation.r_offset), &value, sizeof value);
  }
}

/// Returns what the dynamic loader finds for a name without a version; nullptr where there is nothing. Of the versions of a
/// function it takes the oldest, and dlsym() the newest.
void* find(const char* name) {
  void* const newest = ::dlsym(RTLD_DEFAULT, name);
  void* const oldest = ::dlvsym(RTLD_DEFAULT, name, "GLIBC_2.2.5");
  if (!newest || !oldest || oldest == newest) return newest;
  dl_find_object of_oldest, of_newest;  // the newest may be a function that stands in front of the C library's
  const bool in_one_library = _dl_find_object(oldest, &of_oldest) == 0 && _dl_find_object(newest, &of_newest) == 0 &&
                              of_oldest.dlfo_link_map == of_newest.dlfo_link_map;
  return in_one_library ? oldest : newest;
}

}  // namespace

std::optional<ObjectLoader::Symbols> ObjectLoader::bind(const SimpleObject& object, uintptr_t base) const {
  Symbols symbols;
  symbols.addresses.push_back(0);
  for (size_t i = 1; i < object.symbols.size(); ++i) {
    const Elf64_Sym& symbol = object.symbols[i];
    auto address = reinterpret_cast<uintptr_t>(find(object.names.data() + symbol.st_name));
    if (address == 0 && symbol.st_shndx != SHN_UNDEF) {
      address = base + symbol.st_value;
      symbols.defined.push_back(i);
    }
    if (address == 0 && ELF64_ST_BIND(symbol.st_info) != STB_WEAK) return std::nullopt;
    symbols.addresses.push_back(address);
  }
  ::dlerror();  // nobody else is to be told what was not found
  return symbols;
}

std::optional<ObjectLoader::Loaded> ObjectLoader::load(const std::string& path, std::string_view bytes,
                                                       std::string_view entry) {
  if (!is_usable_ || is_debugged()) return std::nullopt;
  const auto object = read_simple_object(bytes);
  if (!object) return std::nullopt;
  if (!stand_in_) {
    if (has_debugger_list()) stand_in_ = StandIn::load(folder_ + "/cells.so");
    is_usable_ = stand_in_ != nullptr;
    if (!is_usable_) return std::nullopt;
  }
  const StandIn::Room room = stand_in_->room();
  if (room.space < object->size || room.names < object->symbols.size() || room.functions < object->functions.size())
    return std::nullopt;

  const uintptr_t base = stand_in_->next_space();
  const auto symbols = bind(*object, base);
  if (!symbols) return std::nullopt;
  const auto found = std::find_if(object->symbols.begin(), object->symbols.end(), [&](const Elf64_Sym& symbol) {
    return symbol.st_shndx != SHN_UNDEF && entry == object->names.data() + symbol.st_name;
  });
  if (found == object->symbols.end()) return std::nullopt;
  if (!map_object(path, *object, base)) {
    stand_in_->clear_space(base, object->size, PROT_NONE);
    return std::nullopt;
  }
  relocate(*object, base, symbols->addresses);
  stand_in_->take_space(object->size);
  for (const auto& function : object->functions)
    stand_in_->add_function(base + function.begin, base + function.description);
  Loaded loaded{reinterpret_cast<const void*>(base + found->st_value), base, object->size, {}, nullptr};
  for (const size_t i : symbols->defined) {
    Elf64_Sym symbol = object->symbols[i];
    symbol.st_value += base;
    const char* const name = reinterpret_cast<const char*>(base + object->names_address) + symbol.st_name;
    loaded.names.push_back(stand_in_->add_name(name, symbol));
  }
  loaded.debugged = add_to_debugger_list(path, base, base + object->dynamic);
  return loaded;
}

void ObjectLoader::unload(const Loaded& object) {
  remove_from_debugger_list(object.debugged);
  for (const uint32_t name : object.names) stand_in_->remove_name(name);
  // Others may be reading a name at this moment.
  stand_in_->clear_space(object.base, object.size, PROT_READ);
}

}  // namespace lockstep::worker
