#include "worker/cell/throw_guard.h"

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "worker/cell/cell_objects.h"
#include "worker/cell/line_table.h"
#include "worker/process/dynamic_symbols.h"

namespace lockstep::worker {
namespace {

// These encode pointers in exception tables (DWARF, "DW_EH_PE_*").
constexpr uint8_t kOmitted = 0xff, kFormat = 0x0f;
constexpr uint8_t kPointer = 0x00, kUleb = 0x01, kUdata2 = 0x02, kUdata4 = 0x03, kUdata8 = 0x04;

/// Reads a language-specific data area (Itanium C++ ABI, exception handling, part 7).
class Reader {
 public:
  explicit Reader(const uint8_t* at) : at_(at) {}

  uint8_t byte() { return *at_++; }
  uint64_t uleb() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t b = byte();
      value |= uint64_t{b & 0x7fu} << shift;
      if (!(b & 0x80)) return value;
    }
  }
  int64_t sleb() {
    int64_t value = 0;
    for (int shift = 0;;) {
      const uint8_t b = byte();
      value |= int64_t{b & 0x7f} << shift;
      shift += 7;
      if (b & 0x80) continue;
      if ((b & 0x40) && shift < 64) value |= -(int64_t{1} << shift);
      return value;
    }
  }
  uint64_t encoded(uint8_t encoding) {
    switch (encoding & kFormat) {
      case kUleb:
        return uleb();
      case kUdata2:
        return fixed<uint16_t>();
      case kUdata4:
        return fixed<uint32_t>();
      case kPointer:
      case kUdata8:
        return fixed<uint64_t>();
      default:  // the signed forms stand for distances that are never negative here
        return (encoding & 0x07) == kUdata4   ? fixed<uint32_t>()
               : (encoding & 0x07) == kUdata2 ? fixed<uint16_t>()
                                              : fixed<uint64_t>();
    }
  }
  const uint8_t* at() const { return at_; }

 private:
  template <typename T>
  T fixed() {
    T value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  const uint8_t* at_;
};

/// Clang gives a noexcept function a handler for everything that calls __clang_call_terminate at once. A handler of the
/// user's calls __cxa_begin_catch first.
bool is_terminate_pad(uintptr_t pad) {
  constexpr uint8_t kCall = 0xe8;
  constexpr int kReach = 32;
  const auto* code = reinterpret_cast<const uint8_t*>(pad);
  for (int i = 0; i < kReach; ++i) {
    if (code[i] != kCall) continue;
    int32_t distance;
    std::memcpy(&distance, code + i + 1, sizeof distance);
    const uintptr_t target = pad + i + 5 + distance;
    const auto* object = find_cell_object(target);
    return object && LineTable(object->path).symbol(target - object->base) == "__clang_call_terminate";
  }
  return false;
}

/// Says what the function that `lsda` belongs to does with an exception that comes out of the call at `ip`.
enum class Reaction { passes, runs_code, terminates };
Reaction reaction(const uint8_t* lsda, uintptr_t function, uintptr_t ip) {
  Reader reader(lsda);
  const uint8_t pad_encoding = reader.byte();
  const uintptr_t pad_base = pad_encoding == kOmitted ? function : reader.encoded(pad_encoding);
  if (reader.byte() != kOmitted) reader.uleb();  // where the types of handlers are
  const uint8_t site_encoding = reader.byte();
  const uint64_t sites_size = reader.uleb();
  const uint8_t* const sites_end = reader.at() + sites_size;
  while (reader.at() < sites_end) {
    const uint64_t start = reader.encoded(site_encoding), length = reader.encoded(site_encoding);
    const uint64_t pad = reader.encoded(site_encoding), action = reader.uleb();
    if (ip < function + start) break;
    if (ip >= function + start + length) continue;
    if (pad == 0) return Reaction::passes;
    return action != 0 && is_terminate_pad(pad_base + pad) ? Reaction::terminates : Reaction::runs_code;
  }
  return Reaction::terminates;  // a call that the table leaves out must not throw: that is how GCC writes noexcept
}

struct Walk {
  bool terminates = false;
  bool runs_code = false;  // destructors or handlers
  bool met_cell = false;
  bool met_library = false;  // before the first cell: one that is neither the C nor the C++ library
};

/// The prelude is code of cells that is loaded once.
bool is_plain_library(const link_map* map) {
  std::string_view name = map->l_name;
  name.remove_prefix(name.rfind('/') + 1);
  for (const std::string_view known : {"libc.so", "libpthread.so", "libstdc++.so", "libgcc_s.so", "libprelude.so"})
    if (name.starts_with(known)) return true;
  return false;
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  int before = 0;
  const uintptr_t ip = _Unwind_GetIPInfo(context, &before) - (before ? 0 : 1);
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(ip), &found) != 0) return _URC_END_OF_STACK;
  const bool is_worker = found.dlfo_link_map == own_object();
  // The worker's frames at the inner end (this function, lockstep_poll, sleep) throw; at the outer end is who catches.
  if (is_worker) return walk.met_cell ? _URC_END_OF_STACK : _URC_NO_REASON;
  // The handler of a signal calls, not the cell: where its stack is taken the worker writes.
  if (before && !walk.met_cell) walk.met_library = true;
  walk.met_cell = walk.met_cell || find_cell_object(ip);
  if (!walk.met_cell && !is_plain_library(found.dlfo_link_map)) walk.met_library = true;
  const auto* lsda = static_cast<const uint8_t*>(_Unwind_GetLanguageSpecificData(context));
  if (!lsda) return _URC_NO_REASON;
  const Reaction does = reaction(lsda, _Unwind_GetRegionStart(context), ip);
  walk.terminates = does == Reaction::terminates;
  walk.runs_code = walk.runs_code || does == Reaction::runs_code;
  return walk.terminates ? _URC_END_OF_STACK : _URC_NO_REASON;
}

Walk walk_out() {
  // The walk reads line tables, and the worker's open() and read() would walk again.
  static thread_local bool t_walks = false;
  Walk walk;
  walk.terminates = t_walks;
  if (t_walks) return walk;
  t_walks = true;
  _Unwind_Backtrace(visit, &walk);
  t_walks = false;
  return walk;
}

}  // namespace

bool throwing_would_terminate() { return walk_out().terminates; }

bool may_leave_call(Leaving leaving) {
  const Walk walk = walk_out();
  return walk.met_cell && !walk.met_library && !walk.terminates && !(walk.runs_code && leaving == Leaving::nothing);
}

}  // namespace lockstep::worker
