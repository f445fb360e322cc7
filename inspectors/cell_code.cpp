#include "inspectors/cell_code.h"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "dist/rank_context.h"
#include "inspectors/fingerprint.h"
#include "protocol/cell_abi.h"

namespace lockstep::inspect {
namespace {

/// Where a loaded object has its symbols.
struct Symbols {
  uintptr_t base = 0;
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  uint32_t count = 0;
};

/// How many there are: the last chain of the highest bucket ends them. Those that are used, and not defined, come first.
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

Symbols symbols_of(const dl_phdr_info& info) {
  Symbols result{.base = info.dlpi_addr};
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
         entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) result.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) result.names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_GNU_HASH) result.count = count_of(reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr));
    }
  }
  if (!result.symbols || !result.names) result.count = 0;
  return result;
}

/// Some place in the code of a cell; 0 where this rank has not loaded it.
uintptr_t place_in_cell(int64_t cell) {
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

/// The cell that a symbol's mark names.
std::optional<int64_t> cell_of(std::string_view symbol) {
  constexpr std::string_view kMark = "__cell_";
  const size_t at = symbol.find(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  int64_t cell = 0;
  size_t digits = at + kMark.size();
  if (digits >= symbol.size() || !std::isdigit(static_cast<unsigned char>(symbol[digits]))) return std::nullopt;
  for (; digits < symbol.size() && std::isdigit(static_cast<unsigned char>(symbol[digits])); ++digits)
    cell = cell * 10 + (symbol[digits] - '0');
  return cell;
}

}  // namespace

void to_json(nlohmann::json& json, const CellCode& code) {
  json = {{"uses", code.uses}, {"functions", code.functions}};
}

void from_json(const nlohmann::json& json, CellCode& code) {
  json.at("uses").get_to(code.uses);
  json.at("functions").get_to(code.functions);
}

CellCode code_of_cell(int64_t cell) {
  struct Search {
    uintptr_t place;
    Symbols found;
  } search{.place = place_in_cell(cell), .found = {}};
  if (search.place == 0) return {};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* argument) {
        auto& wanted = *static_cast<Search*>(argument);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
          if (segment.p_type != PT_LOAD || wanted.place < begin || wanted.place >= begin + segment.p_memsz) continue;
          wanted.found = symbols_of(*info);
          return 1;
        }
        return 0;
      },
      &search);
  CellCode code;
  for (uint32_t i = 0; i < search.found.count; ++i) {
    const auto& symbol = search.found.symbols[i];
    const char* name = search.found.names + symbol.st_name;
    if (symbol.st_shndx == SHN_UNDEF) {
      if (const auto from = cell_of(name)) code.uses[name_of(name)] = fmt::format("cell {}", *from);
    } else if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_size > 0 &&
               std::string_view(name).starts_with("_Z")) {
      const std::string bytes(reinterpret_cast<const char*>(search.found.base + symbol.st_value), symbol.st_size);
      code.functions[name_of(name)] = fmt::format("{} {:x}", symbol.st_size, hash_of(bytes)[0]);
    }
  }
  return code;
}

}  // namespace lockstep::inspect
