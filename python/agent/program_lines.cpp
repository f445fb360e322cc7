#include "python/agent/program_lines.h"

#include <dwarf.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "protocol/libdw.h"
#include "worker/process/demangle.h"

namespace lockstep::agent {
namespace {

using protocol::Libdw;

/// Whether the file is the compiler's or LibTorch's.
bool is_library(const std::string& file) {
  return file.starts_with("/usr/include/") || file.find("/include/c++/") != std::string::npos ||
         file.find("/torch/include/") != std::string::npos;
}

/// Finds the line in the program of a function that was inlined from a library.
void leave_library(const Libdw& libdw, Dwarf_Die* unit, Dwarf_Addr address, ProgramLine& found) {
  Dwarf_Files* files = nullptr;
  Dwarf_Die* scopes = nullptr;
  if (!is_library(found.file) || libdw.files_of(unit, &files, nullptr) != 0) return;
  const int count = libdw.scopes_of(unit, address, &scopes);  // innermost first
  for (int i = 0; i < count && is_library(found.file); ++i) {
    if (libdw.tag_of(&scopes[i]) != DW_TAG_inlined_subroutine) continue;
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0, line = 0;
    if (libdw.number_of(libdw.attribute_of(&scopes[i], DW_AT_call_file, &attribute), &file) != 0 ||
        libdw.number_of(libdw.attribute_of(&scopes[i], DW_AT_call_line, &attribute), &line) != 0)
      break;
    const char* const name = libdw.name_of_file(files, file, nullptr, nullptr);
    if (!name) break;
    found.file = name;
    found.line = static_cast<int64_t>(line);
  }
  std::free(scopes);
}

/// Goes through the units, since dwfl_module_getsrc needs .debug_aranges, which Clang does not write.
void find_line(const Libdw& libdw, Dwfl_Module* module, uintptr_t address, ProgramLine& found) {
  Dwarf_Addr bias = 0;
  for (Dwarf_Die* unit = nullptr; (unit = libdw.next_unit(module, unit, &bias));) {
    if (libdw.has_address(unit, address - bias) != 1) continue;
    Dwarf_Line* const source = libdw.source_of(unit, address - bias);
    const char* const file = source ? libdw.file_of(source, nullptr, nullptr) : nullptr;
    int line = 0;
    if (!file || libdw.line_of(source, &line) != 0) return;
    found.file = file;
    found.line = line;
    leave_library(libdw, unit, address - bias, found);
    return;
  }
}

}  // namespace

std::vector<ProgramLine> program_lines(const std::vector<uintptr_t>& addresses) {
  std::vector<ProgramLine> lines(addresses.size());
  if (addresses.empty()) return lines;
  const Libdw& libdw = protocol::libdw();
  if (!libdw) return lines;
  Dwfl_Callbacks callbacks = {};
  callbacks.find_elf = libdw.find_elf;
  callbacks.find_debuginfo = protocol::no_debug_file;
  Dwfl* const process = libdw.begin(&callbacks);
  if (!process) return lines;
  if (libdw.report(process, ::getpid()) == 0 && libdw.report_end(process, nullptr, nullptr) == 0) {
    for (size_t i = 0; i < addresses.size(); ++i) {
      Dwfl_Module* const module = libdw.module_of(process, addresses[i]);
      if (!module) continue;
      if (const char* name = libdw.name_of(module, addresses[i])) lines[i].function = worker::demangle(name);
      find_line(libdw, module, addresses[i], lines[i]);
    }
  }
  libdw.end(process);
  return lines;
}

dist::CallPlace place_of_call(uint64_t return_address) {
  ProgramLine found = program_lines({static_cast<uintptr_t>(return_address - 1)}).front();  // inside of the call
  return {.file = std::move(found.file), .line = found.line, .function = ""};
}

}  // namespace lockstep::agent
