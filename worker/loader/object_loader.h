// Loads simple objects (simple_object.h) without the dynamic loader, whose time for an object grows with the number of
// those that are there. The dynamic loader loads the others as usual.
//
// Names mean the same either way: all objects use the first definition in the order of loading, of libraries, the
// prelude and cells, whichever loader has loaded them.
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
  /// The loader writes a file of its own into `folder`, once.
  explicit ObjectLoader(std::string folder) : folder_(std::move(folder)) {}

  struct Loaded {
    const void* entry;
    uintptr_t base;  // its first byte, and what its addresses are relative to
    uint64_t size;
    std::vector<uint32_t> names;  // of the stand-in
    link_map* debugged;
  };

  /// Loads the object in the file `path`, which has `bytes`. Returns nothing where the dynamic loader has to load it,
  /// or to report why it can't be loaded. `entry` names a symbol that it defines.
  std::optional<Loaded> load(const std::string& path, std::string_view bytes, std::string_view entry);

  /// Takes the object out of the process again: nothing that is loaded later finds its names.
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
