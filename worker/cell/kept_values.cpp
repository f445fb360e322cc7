#include "worker/cell/kept_values.h"

#include <dlfcn.h>

#include <map>
#include <stdexcept>
#include <string>

#include "worker/process/demangle.h"
#include "worker/process/run_state.h"

namespace lockstep::detail {
namespace {

constexpr size_t kMostSmall = 1000, kMostOthers = 3;
constexpr size_t kSmallTensorBytes = 64 * 1024;

struct Kept {
  void* object = nullptr;  // nullptr: it could not be kept
  const std::type_info* type = nullptr;
  bool is_small = true;
  void (*destroy)(void*) = nullptr;  // nullptr: the object is somebody else's
};

/// Used on the run thread only; never destroyed, since destructors of cells must not run at the end of the process.
std::map<int64_t, Kept>& values() {
  static auto* const all = new std::map<int64_t, Kept>;
  return *all;
}

void drop(std::map<int64_t, Kept>::iterator kept) {
  const Kept value = kept->second;
  values().erase(kept);
  if (value.destroy) value.destroy(value.object);
}

void keep(const Kept& value) {
  auto& all = values();
  const int64_t cell = worker::run_state().number();
  if (const auto earlier = all.find(cell); earlier != all.end()) drop(earlier);  // of an earlier part of the cell
  all[cell] = value;
  size_t small = 0, others = 0;
  for (auto it = all.end(); it != all.begin();) {
    --it;
    size_t& count = it->second.is_small ? small : others;
    if (++count <= (it->second.is_small ? kMostSmall : kMostOthers)) continue;
    const auto older = it++;
    drop(older);
  }
}

/// A tensor may hold a lot of memory, and with its graph all of a forward pass.
bool is_small_tensor(const at::Tensor& tensor) {
  return !tensor.defined() ||
         (!tensor.grad_fn() && tensor.has_storage() && tensor.storage().nbytes() <= kSmallTensorBytes);
}

}  // namespace

void keep_object(void* object, const std::type_info& type, bool is_small, void (*destroy)(void*)) {
  if (type == typeid(at::Tensor)) is_small = is_small_tensor(*static_cast<const at::Tensor*>(object));
  keep({object, &type, is_small, destroy});
}

void keep_place(void* object, const std::type_info& type) {
  // Variables lie in the mapping of the cell or library that defines them, and none of those is unloaded.
  dl_find_object found;
  const bool stays = _dl_find_object(object, &found) == 0;
  keep({stays ? object : nullptr, &type, true, nullptr});
}

void* kept_value(int64_t cell, const std::type_info& type) {
  const std::string name = "_" + std::to_string(cell);
  const auto found = values().find(cell);
  if (found == values().end())
    throw std::out_of_range(name + ": this rank has no value of cell " + std::to_string(cell) +
                            ": the cell has not shown one here, or too many others have been shown since (" +
                            std::to_string(kMostSmall) + " numbers and small tensors are kept, and " +
                            std::to_string(kMostOthers) + " other values). A variable keeps what is needed for longer");
  if (*found->second.type != type)
    throw std::out_of_range(name + " is of another type on this rank: " + worker::demangle(*found->second.type));
  if (!found->second.object)
    throw std::out_of_range(name + " was a part of another object, which may be gone; ask for it by its own name");
  return found->second.object;
}

}  // namespace lockstep::detail
