#include "worker/loader/debugger_list.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "protocol/files.h"

namespace lockstep::worker {
namespace {

r_debug_extended* list_of_loader() {
  for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_DEBUG) return reinterpret_cast<r_debug_extended*>(entry->d_un.d_ptr);
  return nullptr;
}

// Debuggers read both, and stop all threads for it.
r_debug_extended g_list;
link_map* g_last = nullptr;

/// Appends ours, which has its first object, to the lists. A debugger may look at any moment. The dynamic loader appends those
/// that it makes later.
void publish_list(link_map* object) {
  r_debug_extended* const first = list_of_loader();
  r_debug_extended* last = first;
  while (last->base.r_version >= 2 && last->r_next) last = last->r_next;
  g_list.base = first->base;
  g_list.base.r_version = 2;  // there is an r_next
  g_list.base.r_map = object;
  g_list.base.r_state = r_debug::RT_CONSISTENT;
  std::atomic_ref(last->r_next).store(&g_list, std::memory_order_release);
  std::atomic_ref(first->base.r_version).store(2, std::memory_order_release);
}

}  // namespace

bool has_debugger_list() {
  static const bool has = list_of_loader() && ::dlvsym(RTLD_DEFAULT, "_dl_find_object", "GLIBC_2.35");
  return has;
}

bool is_debugged() {
  constexpr std::string_view kTracer = "\nTracerPid:\t";
  const std::string status = protocol::read_file("/proc/self/status").value_or("");
  const size_t at = status.find(kTracer);
  return at != std::string::npos && status[at + kTracer.size()] != '0';
}

link_map* add_to_debugger_list(const std::string& path, uintptr_t base, uintptr_t dynamic) {
  auto* const object = new link_map{};
  object->l_addr = base;
  object->l_name = ::strdup(path.c_str());
  object->l_ld = reinterpret_cast<ElfW(Dyn)*>(dynamic);
  object->l_prev = g_last;
  if (g_list.base.r_version == 0)
    publish_list(object);
  else
    std::atomic_ref(g_last ? g_last->l_next : g_list.base.r_map).store(object, std::memory_order_release);
  return g_last = object;
}

void remove_from_debugger_list(link_map* object) {
  (object->l_prev ? object->l_prev->l_next : g_list.base.r_map) = object->l_next;
  (object->l_next ? object->l_next->l_prev : g_last) = object->l_prev;
  std::free(object->l_name);
  delete object;
}

}  // namespace lockstep::worker
