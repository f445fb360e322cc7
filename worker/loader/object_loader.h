// Loads simple objects (simple_object.h) without the dynamic loader, whose time for an object grows with the number of
// those that are there. What it leaves to the dynamic loader is loaded as ever.
//
// Names mean the same either way. What has a name first in the order of loading is everybody's: libraries, the prelude,
// and cells, whoever has loaded them.
#pragma once
#include <link.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/loader/simple_object.h"
#include "worker/loader/stand_in.h"

namespace lockstep::worker {

/// Used by one thread.
class ObjectLoader {
 public:
  /// `folder` is where it writes a file of its own, once.
  explicit ObjectLoader(std::string folder) : folder_(std::move(folder)) {}

  struct Loaded {
    const void* entry;
    uintptr_t base;  // its first byte, and what its addresses are relative to
    uint64_t size;
    std::vector<uint32_t> names;  // of the stand-in
    link_map* debugged;
  };

  /// Loads the object in the file `path`, which has `bytes`. Nothing where the dynamic loader has to do it, or to say why
  /// it can't be done. `entry` names a symbol that it defines.
  std::optional<Loaded> load(const std::string& path, std::string_view bytes, std::string_view entry);

  /// Takes it out of the process again: nothing that is loaded later finds its names.
  void unload(const Loaded& object);

 private:
  struct Symbols {
    std::vector<uintptr_t> addresses;
    std::vector<size_t> defined;  // those that nothing has defined before
  };
  std::optional<Symbols> bind(const SimpleObject& object, uintptr_t base) const;

  const std::string folder_;
  std::unique_ptr<StandIn> stand_in_;
  bool is_usable_ = true;
};

}  // namespace lockstep::worker
