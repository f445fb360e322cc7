// The functions of elfutils' libdw that Lockstep calls. The library is looked for at run time: where it is missing, there
// are no native stacks and no lines, and everything else works.
#pragma once
#include <dlfcn.h>
#include <elfutils/libdwfl.h>

namespace lockstep::protocol {

class Libdw {
  void* const library_ = ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  bool is_whole_ = library_ != nullptr;

  template <typename Function>
  Function find(const char* name) {
    void* const found = library_ ? ::dlsym(library_, name) : nullptr;
    is_whole_ = is_whole_ && found;
    return reinterpret_cast<Function>(found);
  }

 public:
  /// Whether all of them are there.
  explicit operator bool() const { return is_whole_; }

  // Processes and their modules
  decltype(&::dwfl_begin) begin = find<decltype(&::dwfl_begin)>("dwfl_begin");
  decltype(&::dwfl_end) end = find<decltype(&::dwfl_end)>("dwfl_end");
  decltype(&::dwfl_linux_proc_report) report = find<decltype(&::dwfl_linux_proc_report)>("dwfl_linux_proc_report");
  decltype(&::dwfl_linux_proc_find_elf) find_elf =
      find<decltype(&::dwfl_linux_proc_find_elf)>("dwfl_linux_proc_find_elf");
  decltype(&::dwfl_report_end) report_end = find<decltype(&::dwfl_report_end)>("dwfl_report_end");
  decltype(&::dwfl_getmodules) modules_of = find<decltype(&::dwfl_getmodules)>("dwfl_getmodules");
  decltype(&::dwfl_addrmodule) module_of = find<decltype(&::dwfl_addrmodule)>("dwfl_addrmodule");
  decltype(&::dwfl_module_info) module_info = find<decltype(&::dwfl_module_info)>("dwfl_module_info");

  // Symbols
  decltype(&::dwfl_module_addrname) name_of = find<decltype(&::dwfl_module_addrname)>("dwfl_module_addrname");
  decltype(&::dwfl_module_getsymtab) symbols_of = find<decltype(&::dwfl_module_getsymtab)>("dwfl_module_getsymtab");
  decltype(&::dwfl_module_getsym) symbol_of = find<decltype(&::dwfl_module_getsym)>("dwfl_module_getsym");

  // Stacks
  decltype(&::dwfl_attach_state) attach = find<decltype(&::dwfl_attach_state)>("dwfl_attach_state");
  decltype(&::dwfl_getthread_frames) frames_of = find<decltype(&::dwfl_getthread_frames)>("dwfl_getthread_frames");
  decltype(&::dwfl_thread_state_registers) set_registers =
      find<decltype(&::dwfl_thread_state_registers)>("dwfl_thread_state_registers");
  decltype(&::dwfl_frame_pc) address_of = find<decltype(&::dwfl_frame_pc)>("dwfl_frame_pc");

  // Lines
  decltype(&::dwfl_module_nextcu) next_unit = find<decltype(&::dwfl_module_nextcu)>("dwfl_module_nextcu");
  decltype(&::dwarf_haspc) has_address = find<decltype(&::dwarf_haspc)>("dwarf_haspc");
  decltype(&::dwarf_getsrc_die) source_of = find<decltype(&::dwarf_getsrc_die)>("dwarf_getsrc_die");
  decltype(&::dwarf_getscopes) scopes_of = find<decltype(&::dwarf_getscopes)>("dwarf_getscopes");
  decltype(&::dwarf_tag) tag_of = find<decltype(&::dwarf_tag)>("dwarf_tag");
  decltype(&::dwarf_attr) attribute_of = find<decltype(&::dwarf_attr)>("dwarf_attr");
  decltype(&::dwarf_formudata) number_of = find<decltype(&::dwarf_formudata)>("dwarf_formudata");
  decltype(&::dwarf_getsrcfiles) files_of = find<decltype(&::dwarf_getsrcfiles)>("dwarf_getsrcfiles");
  decltype(&::dwarf_filesrc) name_of_file = find<decltype(&::dwarf_filesrc)>("dwarf_filesrc");
  decltype(&::dwarf_linesrc) file_of = find<decltype(&::dwarf_linesrc)>("dwarf_linesrc");
  decltype(&::dwarf_lineno) line_of = find<decltype(&::dwarf_lineno)>("dwarf_lineno");
};

/// Returns the library, which is loaded by the first call and stays.
inline const Libdw& libdw() {
  static const Libdw library;
  return library;
}

/// For Dwfl_Callbacks: files of their own with debug information are not looked for, since that may ask a server.
inline int no_debug_file(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) {
  return -1;
}

}  // namespace lockstep::protocol
