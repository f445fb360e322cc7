#include "worker/cell/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "protocol/whole_number.h"
#include "worker/cell/cell_objects.h"
#include "worker/cell/line_table.h"
#include "worker/cell/plain_types.h"
#include "worker/process/demangle.h"
#include "worker/process/dynamic_symbols.h"

namespace lockstep::worker {
namespace {

constexpr size_t kLongestName = 240;

std::string shortened(std::string name) {
  if (name.size() > kLongestName) name = name.substr(0, kLongestName) + "...";
  return name;
}

/// Whether it stands in front of a function of the C library in which threads wait (worker/interpose/locks.cpp): it says
/// what the thread waits for, which the C library's inner functions, that have no names, do not.
bool is_wait(std::string_view name) { return name.starts_with("pthread_") || name.starts_with("sem_"); }

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string where(int64_t cell, int line) {
  std::string text = "cell " + std::to_string(cell);
  if (line > 0) text += ", line " + std::to_string(line);
  return text;
}

int64_t cell_of_source(std::string_view path) {
  std::string_view name = file_name(path);
  constexpr std::string_view kPrefix = "cell_";
  if (!name.starts_with(kPrefix) || !name.ends_with(".cpp")) return 0;
  name = name.substr(kPrefix.size(), name.size() - kPrefix.size() - 4);
  return protocol::whole_number<int64_t>(name).value_or(0);
}

std::string Frame::str() const {
  if (cell > 0) return function.empty() ? where(cell, line) : function + " at " + where(cell, line);
  std::string text = function.empty() ? "??" : function;
  if (!object.empty()) text += " in " + object;
  return text;
}

const Frame* innermost_cell_frame(const std::vector<Frame>& frames) {
  for (const auto& frame : frames)
    if (frame.cell > 0) return &frame;
  return nullptr;
}

/// Returns the symbol as people wrote it; empty where the C++ library can't say it (templates with constraints).
static std::string symbol_name(const std::string& symbol) {
  std::string name = shortened(plain_types(demangle(symbol.c_str())));
  return name.starts_with("_Z") ? std::string() : name;
}

struct Symbols::Impl {
  std::map<const CellObject*, std::unique_ptr<LineTable>> tables;

  const LineTable& table(const CellObject& object) {
    auto& table = tables[&object];
    if (!table) table = std::make_unique<LineTable>(object.path);
    return *table;
  }

  /// The steps of a cell are its top level: they have no name of the user's.
  static bool is_step(const CellObject& object, uintptr_t function) {
    for (uint32_t i = 0; i < object.entry->step_count; ++i)
      if (reinterpret_cast<uintptr_t>(object.entry->steps[i]) == function) return true;
    return false;
  }

  void resolve_in_cell(const CellObject& object, uintptr_t address, std::vector<Frame>& frames) {
    const uintptr_t base = object.base;
    const auto& lines = table(object);
    const auto symbol = lines.symbol(address - base);
    auto places = lines.lookup(address - base);
    if (places.empty()) places.emplace_back();
    for (auto& place : places) {
      Frame frame;
      const auto& name = place.inlined ? place.function : symbol;
      const bool step = !place.inlined && is_step(object, base + lines.symbol_start(address - base));
      if (!step && !name.empty()) frame.function = symbol_name(name);
      frame.cell = cell_of_source(place.file);
      if (frame.cell > 0 && frame.cell == object.number) frame.cell = object.shown_as;
      if (frame.cell > 0)
        frame.line = place.line;
      else if (step)
        frame.cell = object.cell;
      if (frame.cell > 0 || !frame.function.empty()) frames.push_back(std::move(frame));
    }
  }
};

Symbols::Symbols() : impl_(std::make_unique<Impl>()) {}
Symbols::~Symbols() = default;

std::vector<Frame> Symbols::resolve(std::span<const uintptr_t> addresses) {
  // Libraries come first: one pass over the symbols of each, for all the addresses in it.
  std::vector<Frame> outside(addresses.size());
  std::map<const link_map*, std::vector<size_t>> by_library;
  for (size_t i = 0; i < addresses.size(); ++i) {
    dl_find_object found;
    if (find_cell_object(addresses[i])) continue;
    if (_dl_find_object(reinterpret_cast<void*>(addresses[i]), &found) != 0) continue;
    by_library[found.dlfo_link_map].push_back(i);
  }
  for (const auto& [map, members] : by_library) {
    std::vector<uintptr_t> inside;
    for (const size_t i : members) inside.push_back(addresses[i]);
    std::vector<std::string> names(inside.size());
    const bool is_worker = map == own_object();
    DynamicSymbols(map).name(inside, names);
    for (size_t k = 0; k < members.size(); ++k) {
      Frame& frame = outside[members[k]];
      frame.worker = is_worker && !is_wait(names[k]);
      frame.object = std::string(file_name(map->l_name));
      if (!names[k].empty()) frame.function = symbol_name(names[k]);
    }
  }
  std::vector<Frame> frames;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (const auto* object = find_cell_object(addresses[i]))
      impl_->resolve_in_cell(*object, addresses[i], frames);
    else
      frames.push_back(std::move(outside[i]));
  }
  // What lies below the worker's own frames (the start of the thread) says nothing about the user's code.
  const auto last = std::find_if(frames.rbegin(), frames.rend(), [](const Frame& frame) { return frame.cell > 0; });
  if (last != frames.rend()) frames.erase(last.base(), frames.end());
  std::erase_if(frames, [](const Frame& frame) { return frame.worker; });
  return frames;
}

}  // namespace lockstep::worker
