#include "inspectors/trace/program_call_sites.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "python/agent/program_lines.h"

namespace lockstep::inspect {
namespace {

std::string folder_of_object(const void* address) {
  Dl_info info = {};
  if (::dladdr(address, &info) == 0 || !info.dli_fname) return {};
  const std::string_view path = info.dli_fname;
  return std::string(path.substr(0, path.rfind('/') + 1));
}

/// Finds the program's own code: it lies in no folder of the system, of LibTorch or of this library.
class ProgramCode {
 public:
  bool contains(uintptr_t address) {
    const std::lock_guard lock(mutex_);
    const Segment* segment = find(address);
    if (!segment) {  // of an object that was loaded since
      read();
      segment = find(address);
    }
    return segment && segment->is_own;
  }

 private:
  struct Segment {
    uintptr_t begin, end;
    bool is_own;
  };

  const Segment* find(uintptr_t address) const {
    const auto after = std::ranges::upper_bound(segments_, address, {}, &Segment::begin);
    if (after == segments_.begin() || address >= (after - 1)->end) return nullptr;
    return &*(after - 1);
  }

  void read() {
    segments_.clear();
    ::dl_iterate_phdr(
        [](dl_phdr_info* object, size_t, void* self) {
          static_cast<ProgramCode*>(self)->add(*object);
          return 0;
        },
        this);
    std::ranges::sort(segments_, {}, &Segment::begin);
  }

  void add(const dl_phdr_info& object) {
    const std::string_view path = object.dlpi_name;
    const auto in = [&](std::string_view folder) { return !folder.empty() && path.starts_with(folder); };
    const bool is_own = !in("/lib") && !in("/usr/lib") && !in("linux-vdso") && !in(libtorch_) && !in(lockstep_);
    for (int i = 0; i < object.dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = object.dlpi_phdr[i];
      if (header.p_type != PT_LOAD || !(header.p_flags & PF_X)) continue;
      const uintptr_t begin = object.dlpi_addr + header.p_vaddr;
      segments_.push_back({begin, begin + header.p_memsz, is_own});
    }
  }

  std::mutex mutex_;
  const std::string libtorch_ = folder_of_object(reinterpret_cast<const void*>(&at::get_num_threads));
  const std::string lockstep_ = folder_of_object(reinterpret_cast<const void*>(&agent::place_of_call));
  std::vector<Segment> segments_;  // by begin
};

// Never destroyed: threads of autograd may outlive it.
ProgramCode& program_code() {
  static auto* code = new ProgramCode;
  return *code;
}

struct Walk {
  CallSite site;
  size_t found = 0;
};

_Unwind_Reason_Code take(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  const auto address = static_cast<uintptr_t>(_Unwind_GetIP(context));
  if (address != 0 && program_code().contains(address - 1)) walk.site.addresses[walk.found++] = address;
  return walk.found == walk.site.addresses.size() ? _URC_END_OF_STACK : _URC_NO_REASON;
}

}  // namespace

CallSite capture_program_call_site() {
  Walk walk;
  _Unwind_Backtrace(take, &walk);
  return walk.site;
}

std::string describe_program_call_site(const CallSite& site) {
  for (const uintptr_t address : site.addresses)
    if (std::string place = address == 0 ? "" : agent::place_of_call(address).str(); !place.empty()) return place;
  return "";
}

}  // namespace lockstep::inspect
