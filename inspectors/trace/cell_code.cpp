#include "inspectors/trace/cell_code.h"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "collectives/rank_context.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "protocol/cell_abi.h"
#include "protocol/json_fields.h"

namespace lockstep::inspect {
namespace {

/// The symbol table of a loaded object.
struct Symbols {
  uintptr_t base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  uint32_t count = 0;
};

/// Returns the number of symbols, which a hash table does not state: the last chain of the highest bucket ends with the
/// last symbol. Undefined symbols come first and are not in the hash table.
uint32_t count_of(const uint32_t* hash) {
  const uint32_t buckets = hash[0], first = hash[1], bloom = hash[2];
  const uint32_t* bucket = hash + 4 + bloom * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  const uint32_t last = buckets == 0 ? 0 : *std::max_element(bucket, bucket + buckets);
  if (last < first) return first;
  uint32_t end = last;
  while ((chain[end - first] & 1) == 0) ++end;
  return end + 1;
}

/// Reads the object that is loaded at `base`, where its header lies.
Symbols symbols_of(uintptr_t base) {
  Symbols result{.base = base};
  const ElfW(Ehdr)* const header = header_of_cell(base);
  if (!header) return result;
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(base + header->e_phoff);
  // The dynamic loader makes addresses of these in the objects that it loads.
  const auto address = [base](ElfW(Addr) value) { return value < base ? base + value : value; };
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_DYNAMIC) continue;
    for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(base + segments[i].p_vaddr); entry->d_tag != DT_NULL;
         ++entry) {
      const ElfW(Addr) at = address(entry->d_un.d_ptr);
      if (entry->d_tag == DT_SYMTAB) result.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
      if (entry->d_tag == DT_STRTAB) result.names = reinterpret_cast<const char*>(at);
      if (entry->d_tag == DT_GNU_HASH) result.count = count_of(reinterpret_cast<const uint32_t*>(at));
    }
  }
  if (!result.symbols || !result.names) result.count = 0;
  return result;
}

/// Returns where the object of a cell begins; 0 if this rank has not loaded it.
uintptr_t address_in_cell(int64_t cell) {
  const auto context = dist::current_context();
  if (!context) return 0;
  const dist::LogMapping& log = context->log()->mapping();
  for (uint32_t i = log.header().code_range_count.load(std::memory_order_acquire); i-- > 0;)
    if (log.code_range(i).cell == cell) return log.code_range(i).begin;
  return 0;
}

std::string name_of(const char* symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = status == 0 && text ? text : symbol;
  std::free(text);
  return name;
}

/// Returns the cell in a symbol's ABI tag: "_Z3netB8__cell_3" is defined by cell 3. A symbol also has the tags of its
/// types, which are older: "_Z3netB8__cell_1B8__cell_3". The functions that run a cell have a tag of another form.
std::optional<int64_t> cell_of(std::string_view symbol) {
  constexpr std::string_view kMark = "__cell_";
  const size_t first = symbol.find(kMark);
  if (!symbol.starts_with("_Z") || first == std::string_view::npos) return std::nullopt;
  // A tag is "B", its length, and its text.
  size_t at = first;
  while (at > 0 && std::isdigit(static_cast<unsigned char>(symbol[at - 1]))) --at;
  if (at == first || at == 0) return std::nullopt;
  std::optional<int64_t> newest;
  for (--at; at < symbol.size() && symbol[at] == 'B';) {
    size_t length = 0;
    for (++at; at < symbol.size() && std::isdigit(static_cast<unsigned char>(symbol[at])); ++at)
      length = length * 10 + static_cast<size_t>(symbol[at] - '0');
    const std::string_view mark = symbol.substr(at, length);
    if (mark.size() <= kMark.size() || !mark.starts_with(kMark)) break;
    int64_t cell = 0;
    for (const char digit : mark.substr(kMark.size())) {
      if (!std::isdigit(static_cast<unsigned char>(digit))) return std::nullopt;
      cell = cell * 10 + (digit - '0');
    }
    newest = std::max(newest.value_or(0), cell);
    at += length;
  }
  return newest;
}

}  // namespace

LOCKSTEP_DECLARED_JSON(CellCode, uses, functions)

const ElfW(Ehdr) * header_of_cell(uintptr_t begin) {
  const bool is_loaded = dl_iterate_phdr(
                             [](dl_phdr_info* info, size_t, void* address) {
                               for (int i = 0; i < info->dlpi_phnum; ++i) {
                                 const auto& segment = info->dlpi_phdr[i];
                                 const uintptr_t first = info->dlpi_addr + segment.p_vaddr,
                                                 wanted = *static_cast<uintptr_t*>(address);
                                 if (segment.p_type == PT_LOAD && wanted >= first && wanted < first + segment.p_memsz)
                                   return 1;
                               }
                               return 0;
                             },
                             &begin) != 0;
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(begin);
  return is_loaded && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 ? header : nullptr;
}

CellCode code_of_cell(int64_t cell) {
  const uintptr_t begin = address_in_cell(cell);
  const Symbols found = begin == 0 ? Symbols() : symbols_of(begin);
  CellCode code;
  for (uint32_t i = 0; i < found.count; ++i) {
    const auto& symbol = found.symbols[i];
    const char* name = found.names + symbol.st_name;
    if (symbol.st_shndx == SHN_UNDEF) {
      if (const auto from = cell_of(name)) code.uses[name_of(name)] = fmt::format("cell {}", *from);
      continue;
    }
    if (const auto from = cell_of(name)) code.defines[name_of(name)] = fmt::format("cell {}", *from);
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_size > 0 && std::string_view(name).starts_with("_Z")) {
      const std::string bytes(reinterpret_cast<const char*>(found.base + symbol.st_value), symbol.st_size);
      code.functions[name_of(name)] = fmt::format("{} {:x}", symbol.st_size, hash_of(bytes)[0]);
    }
  }
  return code;
}

namespace {

/// Returns the name in the user's code: train for "train(int)", step for "step::{lambda()#1}::operator()() const".
std::string plain_name(const std::string& symbol) {
  const size_t scope = symbol.find("::");
  const std::string name = symbol.substr(0, std::min(symbol.find('('), scope));
  // Members of classes and namespaces do not count, only lambdas.
  if (name.size() == scope && symbol.find("lambda", scope) != scope + 3) return {};
  const bool plain = !name.empty() && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  });
  return plain ? name : std::string();
}

std::string listed(const std::set<std::string>& names) {
  constexpr size_t kMost = 5;
  std::string text;
  size_t count = 0;
  for (const std::string& each : names) {
    if (count++ == kMost) return text + ", …";
    text += (text.empty() ? "" : ", ") + each;
  }
  return text;
}

/// Maps names to the cells that define them.
using NamesOfCell = std::map<std::string, int64_t>;

NamesOfCell plain_names(const std::map<std::string, std::string>& symbols) {
  NamesOfCell names;
  for (const auto& [symbol, cell] : symbols)
    if (const std::string plain = plain_name(symbol); !plain.empty())
      names[plain] = std::max(names[plain], static_cast<int64_t>(std::stoll(cell.substr(5))));
  return names;
}

}  // namespace

std::string older_definitions(const std::string& name, bool itself) {
  const auto context = dist::current_context();
  if (!context) return {};
  const dist::LogMapping& log = context->log()->mapping();
  std::map<int64_t, std::pair<NamesOfCell, NamesOfCell>> cells;  // what each uses, and what it defines
  NamesOfCell newest;
  for (uint32_t i = 0; i < log.header().code_range_count.load(std::memory_order_acquire); ++i) {
    const int64_t number = log.code_range(i).cell;
    if (cells.contains(number)) continue;
    const CellCode code = code_of_cell(number);
    const auto& [uses, defines] = cells[number] = {plain_names(code.uses), plain_names(code.defines)};
    for (const auto& [each, cell] : defines) newest[each] = std::max(newest[each], cell);
  }
  if (!newest.contains(name)) return {};
  std::set<std::string> renewed, holders;
  int64_t old = 0, again = 0;
  for (const auto& [number, names] : cells) {
    const auto& [uses, defines] = names;
    NamesOfCell held = defines;
    for (const auto& [each, cell] : uses) held[each] = cell;  // the older definition, even if the cell has a new one
    for (const auto& [what, cell] : held) {
      if (!newest.contains(what) || newest.at(what) == cell || (!itself && what != name)) continue;
      for (const auto& [holder, of] : defines) {
        // Definitions of the same cell as the new one, and of later cells, use the new one.
        if (newest.at(holder) != of || of >= newest.at(what) || holder == what || (itself && holder != name)) continue;
        holders.insert(holder);
        renewed.insert(what);
        old = cell;
        again = newest.at(what);
      }
    }
  }
  if (holders.empty()) return {};
  const bool one = holders.size() == 1;
  return fmt::format("{} {} defined again in cell {}; {} {} older and still {} that of cell {}: define {} again, too",
                     listed(renewed), renewed.size() == 1 ? "was" : "were", again, listed(holders), one ? "is" : "are",
                     one ? "uses" : "use", old, one ? "it" : "them");
}

}  // namespace lockstep::inspect
