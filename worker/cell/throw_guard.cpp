#include "worker/cell/throw_guard.h"

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <cstdint>
#include <cstring>

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
    dl_find_object found;
    if (!object || _dl_find_object(reinterpret_cast<void*>(target), &found) != 0) return false;
    return LineTable(object->path).symbol(target - found.dlfo_link_map->l_addr) == "__clang_call_terminate";
  }
  return false;
}

/// Whether the function that `lsda` belongs to lets an exception pass that comes out of the call at `ip`.
bool terminates(const uint8_t* lsda, uintptr_t function, uintptr_t ip) {
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
    return pad != 0 && action != 0 && is_terminate_pad(pad_base + pad);
  }
  return true;  // a call that the table leaves out must not throw: that is how GCC writes noexcept
}

struct Walk {
  bool terminates = false;
  bool met_cell = false;
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  int before = 0;
  const uintptr_t ip = _Unwind_GetIPInfo(context, &before) - (before ? 0 : 1);
  dl_find_object found;
  if (_dl_find_object(reinterpret_cast<void*>(ip), &found) != 0) return _URC_END_OF_STACK;
  const bool is_worker = found.dlfo_link_map == own_object();
  // The worker's frames at the inner end (this function, lockstep_poll, sleep) throw; at the outer end is who catches.
  if (is_worker) return walk.met_cell ? _URC_END_OF_STACK : _URC_NO_REASON;
  walk.met_cell = walk.met_cell || find_cell_object(ip);
  const auto* lsda = static_cast<const uint8_t*>(_Unwind_GetLanguageSpecificData(context));
  if (lsda && terminates(lsda, _Unwind_GetRegionStart(context), ip)) {
    walk.terminates = true;
    return _URC_END_OF_STACK;
  }
  return _URC_NO_REASON;
}

}  // namespace

bool throwing_would_terminate() {
  Walk walk;
  _Unwind_Backtrace(visit, &walk);
  return walk.terminates;
}

}  // namespace lockstep::worker
