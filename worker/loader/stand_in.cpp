#include "worker/loader/stand_in.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>

#include "protocol/files.h"
#include "worker/loader/simple_object.h"

namespace lockstep::worker {
namespace {

// Objects that find no room are loaded by the dynamic loader. Memory is taken by what is used.
constexpr uint64_t kSpace = uint64_t{15} << 27;
constexpr uint32_t kNames = 1 << 20, kBuckets = 1 << 16, kFunctions = 1 << 20;

constexpr uint64_t kTablesAddress = kMappedPage;
constexpr uint32_t kUnwindForm =
    0x3b031b01;  // version 1; addresses relative to themselves, a count, entries to the table

/// Source: System V gABI, "Hash Table".
uint32_t sysv_hash(const char* name) {
  uint32_t hash = 0;
  for (; *name != '\0'; ++name) {
    hash = (hash << 4) + static_cast<unsigned char>(*name);
    const uint32_t high = hash & 0xf0000000;
    hash = (hash ^ (high >> 24)) & ~high;
  }
  return hash;
}

}  // namespace

struct StandIn::Tables {
  Elf64_Dyn dynamic[7];
  uint32_t buckets, names;  // DT_HASH begins here. The file ends after these: what follows is zero at first

  uint32_t first[kBuckets];
  uint32_t next[kNames];
  Elf64_Sym symbols[kNames];

  uint32_t unwind_form;
  int32_t no_descriptions;  // where they begin, for readers of another kind; relative to this
  uint32_t functions;
  struct {
    int32_t begin, description;  // relative to unwind_form
  } function[kFunctions];
  uint32_t end_of_descriptions;
};

std::string StandIn::file() {
  static_assert(sizeof(Tables) + kMappedPage + kSpace < INT32_MAX);  // the reach of `function`
  constexpr uint64_t kSpaceAddress = page_ceiling(kTablesAddress + sizeof(Tables));
  const auto address = [](size_t offset) { return kTablesAddress + offset; };
  const auto segment = [](uint32_t type, uint32_t flags, uint64_t address, uint64_t in_file, uint64_t size) {
    return Elf64_Phdr{type, flags, in_file == 0 ? 0 : address, address, address, in_file, size, kMappedPage};
  };
  constexpr uint64_t kInFile = offsetof(Tables, first);
  struct {
    Elf64_Ehdr header;
    Elf64_Phdr segments[6];
  } head = {};
  const unsigned char identity[EI_NIDENT] = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT};
  std::memcpy(head.header.e_ident, identity, sizeof identity);
  head.header.e_type = ET_DYN;
  head.header.e_machine = EM_X86_64;
  head.header.e_version = EV_CURRENT;
  head.header.e_phoff = sizeof head.header;
  head.header.e_ehsize = sizeof head.header;
  head.header.e_phentsize = sizeof(Elf64_Phdr);
  head.header.e_phnum = std::size(head.segments);
  head.header.e_shentsize = sizeof(Elf64_Shdr);
  head.segments[0] = segment(PT_LOAD, PF_R, 0, sizeof head, sizeof head);
  head.segments[1] = segment(PT_LOAD, PF_R | PF_W, kTablesAddress, kInFile, sizeof(Tables));
  head.segments[2] = segment(PT_LOAD, 0, kSpaceAddress, 0, kSpace);  // not accessible, so it counts as no memory
  head.segments[3] = segment(PT_DYNAMIC, PF_R | PF_W, kTablesAddress, sizeof(Tables::dynamic), sizeof(Tables::dynamic));
  head.segments[4] = segment(PT_GNU_EH_FRAME, PF_R, address(offsetof(Tables, unwind_form)), 0,
                             offsetof(Tables, end_of_descriptions) - offsetof(Tables, unwind_form));
  head.segments[5] = segment(PT_GNU_STACK, PF_R | PF_W, 0, 0, 0);

  // Names are those of the objects: they are found relative to the tables, however far away they are.
  const Elf64_Dyn dynamic[] = {{DT_HASH, {address(offsetof(Tables, buckets))}},
                               {DT_SYMTAB, {address(offsetof(Tables, symbols))}},
                               {DT_SYMENT, {sizeof(Elf64_Sym)}},
                               {DT_STRTAB, {kTablesAddress}},
                               {DT_STRSZ, {UINT32_MAX}},
                               {DT_FLAGS_1, {DF_1_NOW | DF_1_NODELETE}},
                               {DT_NULL, {0}}};
  static_assert(sizeof dynamic == sizeof(Tables::dynamic));
  const uint32_t hash[] = {kBuckets, 1};
  std::string bytes(kTablesAddress + kInFile, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + kTablesAddress, dynamic, sizeof dynamic);
  std::memcpy(bytes.data() + address(offsetof(Tables, buckets)), hash, sizeof hash);
  return bytes;
}

std::unique_ptr<StandIn> StandIn::load(const std::string& path) {
  // Where a process may not have all addresses, they are for what it computes.
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return nullptr;
  if (protocol::replace_file(path, file(), 0600) != 0) return nullptr;
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) {
    ::dlerror();
    ::unlink(path.c_str());
    return nullptr;
  }
  return std::unique_ptr<StandIn>(new StandIn(static_cast<const link_map*>(handle)->l_addr));
}

StandIn::StandIn(uintptr_t base)
    : base_(base),
      tables_(reinterpret_cast<Tables*>(base + kTablesAddress)),
      next_space_(base + page_ceiling(kTablesAddress + sizeof(Tables))) {
  ::madvise(tables_, sizeof(Tables), MADV_NOHUGEPAGE);  // little of them is used
  tables_->no_descriptions =
      static_cast<int32_t>(offsetof(Tables, end_of_descriptions) - offsetof(Tables, no_descriptions));
  std::atomic_ref(tables_->unwind_form).store(kUnwindForm, std::memory_order_release);
}

StandIn::Room StandIn::room() const {
  const uintptr_t end = base_ + page_ceiling(kTablesAddress + sizeof(Tables)) + kSpace;
  return {end - next_space_, kNames - tables_->names, kFunctions - tables_->functions};
}

void StandIn::clear_space(uintptr_t address, uint64_t size, int protection) const {
  ::mmap(reinterpret_cast<void*>(address), size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

uint32_t StandIn::add_name(const char* name, const Elf64_Sym& symbol) {
  const uint32_t index = tables_->names, bucket = sysv_hash(name) % kBuckets;
  Elf64_Sym& entry = tables_->symbols[index];
  entry = symbol;
  entry.st_name = static_cast<Elf64_Word>(reinterpret_cast<uintptr_t>(name) - reinterpret_cast<uintptr_t>(tables_));
  entry.st_value -= base_;
  entry.st_shndx = 1;  // any section: it is defined
  tables_->next[index] = tables_->first[bucket];
  std::atomic_ref(tables_->first[bucket]).store(index, std::memory_order_release);
  std::atomic_ref(tables_->names).store(index + 1, std::memory_order_release);
  return index;
}

void StandIn::remove_name(uint32_t index) {
  // A symbol without a value is passed over. It stays in its chain, for those who are walking it.
  std::atomic_ref(tables_->symbols[index].st_value).store(0, std::memory_order_release);
}

void StandIn::add_function(uintptr_t begin, uintptr_t description) {
  const auto table = reinterpret_cast<uintptr_t>(&tables_->unwind_form);
  tables_->function[tables_->functions] = {static_cast<int32_t>(begin - table),
                                           static_cast<int32_t>(description - table)};
  std::atomic_ref(tables_->functions).store(tables_->functions + 1, std::memory_order_release);
}

}  // namespace lockstep::worker
