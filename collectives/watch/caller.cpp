#include "collectives/watch/caller.h"

#include <atomic>

namespace lockstep::dist {

namespace {
std::atomic<uint64_t (*)()> caller_finder{nullptr};
std::atomic<bool> are_named{false};
}  // namespace

void set_caller_finder(uint64_t (*find)(), bool named) {
  are_named = named;
  caller_finder = find;
}

bool callers_are_named() { return are_named.load(std::memory_order_relaxed); }

uint64_t find_caller() {
  const auto find = caller_finder.load(std::memory_order_relaxed);
  return find ? find() : 0;
}

}  // namespace lockstep::dist
