#include "worker/cell/call_sites.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "collectives/watch/caller.h"
#include "inspectors/trace/call_site.h"
#include "worker/cell/cell_objects.h"
#include "worker/cell/symbols.h"
#include "worker/process/stack.h"

namespace lockstep::worker {
namespace {

/// Takes the innermost frames in cells. Headers' inline functions are compiled into cells, too, so the first need not
/// be in the user's text.
inspect::CallSite capture() {
  Stack stack;
  capture_stack(stack);
  inspect::CallSite site;
  size_t found = 0;
  for (int i = 0; i < stack.size && found < site.addresses.size(); ++i)
    if (find_cell_object(stack.pc[i])) site.addresses[found++] = stack.pc[i];
  return site;
}

std::string describe(const inspect::CallSite& site) {
  static thread_local Symbols symbols;
  const auto end = std::find(site.addresses.begin(), site.addresses.end(), 0);
  const std::vector<uintptr_t> addresses(site.addresses.begin(), end);
  const std::vector<Frame> frames = symbols.resolve(addresses);
  for (const Frame& frame : frames)
    if (frame.cell > 0 && frame.line > 0) return where(frame.cell, frame.line);
  const Frame* frame = innermost_cell_frame(frames);
  return frame ? where(frame->cell, frame->line) : std::string();
}

/// Finds the innermost return address in the user's text. An address keeps its meaning: code that has run stays loaded.
dist::Caller find_caller() {
  constexpr size_t kKnown = 10'000;
  static thread_local std::unordered_map<uintptr_t, bool> known;
  if (known.size() > kKnown) known.clear();
  Stack stack;
  capture_stack(stack);
  for (int i = 0; i < stack.size; ++i) {
    const uintptr_t address = stack.pc[i];
    const auto [place, fresh] = known.emplace(address, false);
    if (fresh && find_cell_object(address)) {
      Symbols symbols;
      place->second = innermost_cell_frame(symbols.resolve({&address, 1})) != nullptr;
    }
    if (place->second) return {.site = address + 1};
  }
  return {};
}

}  // namespace

void name_cells_in_findings() { inspect::set_call_sites({.capture = capture, .describe = describe}); }

void install_call_sites() {
  name_cells_in_findings();
  dist::set_caller_finder(find_caller);
}

}  // namespace lockstep::worker
