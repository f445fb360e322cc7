#include "ddp/wrappers.h"

#include <map>
#include <mutex>

#include "ddp/state.h"

namespace lockstep::ddp::detail {
namespace {

struct Wrappers {
  std::mutex mutex;
  std::multimap<const torch::nn::Module*, std::weak_ptr<State>> by_module;  // in the order of construction
};

// Never destroyed: modules of static storage may go after it would.
Wrappers& wrappers() {
  static auto* all = new Wrappers;
  return *all;
}

}  // namespace

void remember_wrapper(State& state) {
  Wrappers& all = wrappers();
  const std::lock_guard lock(all.mutex);
  all.by_module.emplace(state.module.get(), state.weak_from_this());
}

void forget_wrapper(const State& state) {
  Wrappers& all = wrappers();
  const std::lock_guard lock(all.mutex);
  const auto [begin, end] = all.by_module.equal_range(state.module.get());
  for (auto each = begin; each != end;) each = each->second.expired() ? all.by_module.erase(each) : std::next(each);
}

std::shared_ptr<State> find_wrapper(const torch::nn::Module& module) {
  Wrappers& all = wrappers();
  const std::lock_guard lock(all.mutex);
  auto [begin, end] = all.by_module.equal_range(&module);
  while (begin != end)
    if (auto state = (--end)->second.lock()) return state;
  return nullptr;
}

}  // namespace lockstep::ddp::detail
