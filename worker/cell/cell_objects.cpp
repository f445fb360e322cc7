#include "worker/cell/cell_objects.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "protocol/descriptor.h"
#include "protocol/error.h"
#include "worker/process/demangle.h"
#include "worker/process/host.h"

namespace lockstep::worker {
namespace {

// It only grows, at the front, so that readers on other threads and in signal handlers need no lock.
std::atomic<const CellObject*> g_objects{nullptr};
std::atomic<size_t> g_count{0};

std::string write_object(const std::string& path, std::string_view bytes) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700));
  if (!file) return std::string("the session's folder can't be written: ") + std::strerror(errno);
  if (write_all(file.get(), bytes)) return "";
  const std::string why = std::strerror(errno);
  ::unlink(path.c_str());
  return "the object could not be written to the session's folder: " + why;
}

/// Returns what dlopen said, without our path and with names demangled.
std::string explain(std::string text, const std::string& path) {
  if (text.starts_with(path + ": ")) text.erase(0, path.size() + 2);
  constexpr std::string_view kUndefined = "undefined symbol: ";
  if (const auto at = text.find(kUndefined); at != std::string::npos) {
    auto symbol = text.substr(at + kUndefined.size());
    symbol = symbol.substr(0, symbol.find_first_of(", \n"));
    return "'" + demangle(symbol.c_str()) +
           "' is declared, but nothing that is loaded on this rank defines it. If a library does, read its header by "
           "%lib LIBRARY HEADER";
  }
  if (text.find("Cannot allocate memory") != std::string::npos || text.find("cannot map") != std::string::npos)
    return text + ": this rank has " + std::to_string(mapping_count()) + " mappings of " +
           std::to_string(mapping_limit().value_or(0)) +
           " allowed; raise the limit (sysctl vm.max_map_count) or start a new session";
  return text;
}

/// Returns nullptr where `problem` says why.
void* open_or_explain(const std::string& path, std::string& problem) {
  try {
    if (void* handle = open_object(path)) return handle;
    const char* error = ::dlerror();
    problem = error ? error : "it could not be loaded";
  } catch (const Error& error) {
    problem = error.what();
  }
  return nullptr;
}

/// Returns nothing where `problem` says why.
std::optional<OpenedCell> open_cell(const std::string& path, std::string_view bytes, const std::string& entry,
                                    std::string& problem) {
  if (auto opened = open_without_dlopen(path, bytes, entry)) return opened;
  void* const handle = open_or_explain(path, problem);
  if (!handle) return std::nullopt;
  OpenedCell opened;
  opened.entry = ::dlsym(handle, entry.c_str());
  opened.close = [handle, path] { close_object(handle, path); };
  dl_find_object found;
  if (opened.entry && _dl_find_object(const_cast<void*>(opened.entry), &found) == 0) {
    opened.base = found.dlfo_link_map->l_addr;
    opened.begin = reinterpret_cast<uintptr_t>(found.dlfo_map_start);
    opened.end = reinterpret_cast<uintptr_t>(found.dlfo_map_end);
  }
  return opened;
}

}  // namespace

LoadResult load_cell(int64_t cell, const std::string& directory, const std::string& name, const std::string& entry,
                     std::string_view bytes) {
  if (name.empty() || name.find('/') != std::string::npos)
    return {nullptr, "the object's name '" + name + "' is no file name"};
  const std::string path = directory + "/" + name;
  if (auto failed = write_object(path, bytes); !failed.empty()) return {nullptr, failed};
  std::string problem;
  auto opened = open_cell(path, bytes, entry, problem);
  if (!opened) {
    ::unlink(path.c_str());
    return {nullptr, explain(problem, path)};
  }
  const auto* found = static_cast<const lockstep_cell_entry*>(opened->entry);
  if (!found) return {nullptr, "the object has no entry '" + entry + "'"};
  if (found->abi != kCellAbi)
    return {nullptr, "the compiler makes cells of ABI " + std::to_string(found->abi) +
                         " and this worker runs those of ABI " + std::to_string(kCellAbi) +
                         ": use a compiler and a worker of the same build"};
  auto* object = new CellObject;  // never deleted: readers on other threads hold on to it
  object->cell = cell;
  object->path = path;
  object->entry = found;
  object->close = std::move(opened->close);
  object->base = opened->base;
  object->begin = opened->begin;
  object->end = opened->end;
  object->next = g_objects.load();
  g_objects.store(object);
  g_count.fetch_add(1);
  return {object, ""};
}

void unload_cell(const CellObject& object) {
  object.end = 0;
  object.close();
  ::unlink(object.path.c_str());
  g_count.fetch_sub(1);
}

std::string load_library(const std::string& path) {
  std::string problem;
  return open_or_explain(path, problem) ? std::string() : problem;
}

const CellObject* find_cell_object(uintptr_t address) {
  for (const auto* object = g_objects.load(); object; object = object->next)
    if (address >= object->begin && address < object->end) return object;
  return nullptr;
}

size_t cell_object_count() { return g_count.load(); }

int64_t mapping_count() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

std::optional<int64_t> mapping_limit() {
  std::ifstream file("/proc/sys/vm/max_map_count");
  int64_t limit = 0;
  if (file >> limit) return limit;
  return std::nullopt;
}

int64_t cells_left() {
  const auto limit = mapping_limit();
  if (!limit) return std::numeric_limits<int32_t>::max();
  return std::max<int64_t>(0, (*limit - mapping_count()) / kMappingsPerCell);
}

}  // namespace lockstep::worker
