// A shared object that the dynamic loader loads once, and that stands for all objects that it does not load: they lie
// in its memory, their names are in its symbol table, and their functions in its table for exceptions. So later
// objects, dlsym(), dladdr() and unwinders find them as those of one object.
//
// The tables grow while other threads read them: an entry is complete before it is linked or counted. For this the
// symbol table has a hash table of the old kind (DT_HASH), whose chains can be extended at their front.
#pragma once
#include <elf.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::worker {

class StandIn {
 public:
  /// Writes the object to `path` and has it loaded. Returns null where that fails, as with a limit on the memory of a
  /// process.
  static std::unique_ptr<StandIn> load(const std::string& path);

  struct Room {
    uint64_t space;  // bytes
    uint64_t names, functions;
  };
  /// Returns the room that is left.
  Room room() const;

  /// Returns the address of the page at which the next object lies. Nothing is mapped there.
  uintptr_t next_space() const { return next_space_; }
  /// Keeps `size` bytes from next_space() on.
  void take_space(uint64_t size) { next_space_ += size; }
  /// Replaces the mapping at `address` by an empty one, which reads as zeros if `protection` allows reading.
  void clear_space(uintptr_t address, uint64_t size, int protection) const;

  /// Adds a symbol, whose value is its address. `name` lies in the space, and ends with '\0'. Returns its index.
  uint32_t add_name(const char* name, const Elf64_Sym& symbol);
  /// Removes a symbol: it is found no longer.
  void remove_name(uint32_t index);

  /// Adds the function at `begin`, which is not below those added before; `description` is its FDE.
  void add_function(uintptr_t begin, uintptr_t description);

 private:
  struct Tables;
  static std::string file();
  explicit StandIn(uintptr_t base);

  const uintptr_t base_;
  Tables* const tables_;
  uintptr_t next_space_;
};

}  // namespace lockstep::worker
