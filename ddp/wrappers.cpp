#include "ddp/wrappers.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "ddp/state.h"

namespace lockstep::ddp::detail {
namespace {

struct Wrappers {
  std::mutex mutex;
  std::multimap<const torch::nn::Module*, std::weak_ptr<State>> by_module;  // in the order of construction
};

// Never destroyed: modules of static storage may be destroyed later.
Wrappers& wrappers() {
  static auto* all = new Wrappers;
  return *all;
}

}  // namespace

void remember_wrapper(State& state) {
  Wrappers& all = wrappers();
  const std::lock_guard lock(all.mutex);
  all.by_module.emplace(state.replica().module().get(), state.weak_from_this());
}

void forget_wrapper(const State& state) {
  Wrappers& all = wrappers();
  const std::lock_guard lock(all.mutex);
  const auto [begin, end] = all.by_module.equal_range(state.replica().module().get());
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

bool is_announced_by_another(const State& state, const torch::Tensor& parameter) {
  std::vector<std::shared_ptr<State>> others;  // released without the lock, which the destructor takes
  {
    Wrappers& all = wrappers();
    const std::lock_guard lock(all.mutex);
    for (const auto& [module, wrapper] : all.by_module)
      if (auto other = wrapper.lock(); other && other.get() != &state) others.push_back(std::move(other));
  }
  // The parameter is compared first: where ranks are threads, the wrapper of another rank may announce at the same
  // time.
  return std::any_of(others.begin(), others.end(), [&](const auto& other) {
    const auto theirs = other->replica().module()->parameters();
    return std::any_of(theirs.begin(), theirs.end(), [&](const auto& each) { return each.is_same(parameter); }) &&
           is_announced(other->step().phase());
  });
}

}  // namespace lockstep::ddp::detail
