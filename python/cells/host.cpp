#include "python/cells/host.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "protocol/error.h"
#include "protocol/files.h"
#include "python/cells/callbacks.h"
#include "python/cells/needed.h"
#include "worker/process/dynamic_symbols.h"
#include "worker/process/host.h"

namespace lockstep::python {
namespace {

struct Objects {
  std::string folder;
  std::vector<std::string> opened;  // paths, oldest first
  int64_t lists = 0;
};

/// Used on the thread that runs cells.
Objects& objects() {
  static auto* const all = new Objects;
  return *all;
}

/// Returns this library and those that it is linked with: LibTorch, liblockstep, the C++ library.
std::vector<std::string> libraries() {
  const link_map* own = worker::own_object();
  std::vector<std::string> result{own->l_name};
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = own->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  for (const ElfW(Dyn)* entry = own->l_ld; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_NEEDED) result.emplace_back(strings + entry->d_un.d_val);
  for (const char* library : {"libtorch_cuda.so", "libc10_cuda.so"}) {
    if (void* loaded = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD)) {
      result.emplace_back(library);
      ::dlclose(loaded);
    }
  }
  return result;
}

void send(const protocol::WorkerMessage& message) {
  call_back("post", {protocol::encode(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)});
}

}  // namespace

void begin_objects(const std::string& folder) {
  objects().folder = folder;
  objects().opened.clear();
}

}  // namespace lockstep::python

namespace lockstep::worker {

void* open_object(const std::string& path) {
  auto& objects = python::objects();
  std::vector<std::string> needed = python::libraries();
  needed.insert(needed.end(), objects.opened.begin(), objects.opened.end());
  needed.push_back(path);
  const std::string list = objects.folder + "/objects-" + std::to_string(++objects.lists) + ".so";
  // The dynamic linker would read beyond the end of a file that is cut off (SIGBUS).
  protocol::write_at_once(list, python::object_that_needs(needed));
  void* handle = ::dlopen(list.c_str(), RTLD_NOW | RTLD_LOCAL);
  ::unlink(list.c_str());
  if (handle) objects.opened.push_back(path);
  return handle;
}

void close_object(void* handle, const std::string& path) {
  std::erase(python::objects().opened, path);
  ::dlclose(handle);
}

/// Names of cells are found through the list of one object, and nowhere else.
std::optional<OpenedCell> open_without_dlopen(const std::string&, std::string_view, std::string_view) {
  return std::nullopt;
}

void send_to_session(protocol::Value value) { python::send(std::move(value)); }
void send_to_session(protocol::Progress progress) { python::send(std::move(progress)); }

void keep_for_preemption(std::function<void()>) {
  throw Error("ranks in Python save what they have in Python: call on_preempt(f) in a Python cell of a session");
}

void end_without_run_thread() {
  std::fputs("lockstep: a C++ cell has ended the main thread (pthread_exit), and the rank with it\n", stderr);
  ::_exit(1);
}

}  // namespace lockstep::worker
