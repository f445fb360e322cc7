// Copies a training run from one rank to others, after a rank was lost and started again: parameters, buffers,
// optimizers, the layout of DDP's buckets, and to ranks that are new the generators. Training then goes on bit by bit as
// if nothing had happened.
//
//   ddp::restore(net, optimizer, /*from=*/0);      // on all ranks
//
// What ranks do not share can't be copied: a shard of an optimizer's state, for example, is gone with its rank. The
// report names it.
#pragma once
#include <torch/torch.h>

#include <concepts>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/distributed_module.h"
#include "protocol/rank_set.h"

namespace lockstep::ddp {

/// What was copied, and what is lost. The same on all ranks.
struct RestoreReport {
  int from = 0;
  RankSet to;
  std::vector<std::string> restored;  // "net: 12 tensors"
  std::vector<std::string> lost;  // "net.scale differs between the other ranks"
};
std::ostream& operator<<(std::ostream& out, const RestoreReport& report);

namespace detail {

template <typename T>
concept HoldsModule = requires(const T& holder) {
  { *holder.module() } -> std::convertible_to<const torch::nn::Module&>;
} || requires(const T& holder) {
  { *holder.ptr() } -> std::convertible_to<const torch::nn::Module&>;
};
template <typename T>
concept PointsToObject = requires(const T& pointer) {
  { *pointer };
  { static_cast<bool>(pointer) };
  requires std::is_class_v<std::remove_cvref_t<decltype(*pointer)>>;
};

/// Whether it has state that can be restored.
template <typename T>
constexpr bool is_restorable() {
  using Object = std::remove_cv_t<T>;
  if constexpr (std::derived_from<Object, torch::nn::Module> || std::derived_from<Object, torch::optim::Optimizer> ||
                std::derived_from<Object, DistributedModule> || HoldsModule<Object>)
    return true;
  else if constexpr (PointsToObject<Object>)
    return is_restorable<std::remove_cvref_t<decltype(*std::declval<const Object&>())>>();
  else
    return false;
}

}  // namespace detail

/// Gathers what is to be copied. Every rank adds the same objects in the same order.
class Restoration {
 public:
  /// Copies from rank `from` to the ranks `to`, or to all others where it is empty. Ranks in neither keep what they have;
  /// where they do not agree with `from`, a value is not known to be shared, and is not copied.
  explicit Restoration(int from, RankSet to = {}) : from_(from), to_(std::move(to)) {}

  /// Adds a module, a wrapper, an optimizer or a pointer to one of these. Leaves out what is none.
  template <typename T>
  Restoration& add(const std::string& name, T& object) {
    using Object = std::remove_cv_t<T>;
    auto& accessible = const_cast<Object&>(object);
    if constexpr (std::derived_from<Object, DistributedModule>) {
      add_module(name, *object.module(), object.options().broadcast_buffers());
      wrappers_.push_back(object);
    } else if constexpr (std::derived_from<Object, torch::nn::Module>) {
      add_module(name, accessible);
    } else if constexpr (std::derived_from<Object, torch::optim::Optimizer>) {
      optimizers_.push_back({name, &accessible});
    } else if constexpr (std::derived_from<Object, torch::optim::LRScheduler>) {
      left_.push_back(name + ": a scheduler of learning rates has no state that can be read");
    } else if constexpr (requires { *object.module(); } && detail::HoldsModule<Object>) {
      add_module(name, *object.module());
    } else if constexpr (detail::HoldsModule<Object>) {
      if (!object.is_empty()) add_module(name, *object.ptr());
    } else if constexpr (detail::is_restorable<Object>()) {
      if (object) add(name, *object);
    }
    return *this;
  }

  /// Copies. Collective over all ranks of the default group. Throws ArgumentError for ranks that do not exist.
  RestoreReport run();

 private:
  struct NamedTensor {
    std::string name;
    torch::Tensor tensor;
    bool is_synchronised = false;  // a buffer that each forward takes from rank 0
  };
  struct NamedOptimizer {
    std::string name;
    torch::optim::Optimizer* optimizer;
  };
  void add_module(const std::string& name, torch::nn::Module& module, bool synchronises_buffers = false);
  std::string description() const;
  void copy_tensors(const std::vector<std::string>& descriptions, RestoreReport& report);
  void copy_optimizer(size_t index, const std::vector<std::string>& descriptions, RestoreReport& report);
  void copy_state(torch::optim::Optimizer& optimizer, const RankSet& to) const;
  void copy_buckets() const;
  void copy_generators(const RankSet& to) const;

  int from_;
  RankSet to_;
  std::vector<NamedTensor> tensors_;
  std::vector<NamedOptimizer> optimizers_;
  std::vector<DistributedModule> wrappers_;
  std::vector<std::string> left_;
  std::map<std::string, size_t> modules_;  // name → number of its tensors
};

/// Lets all ranks take parameters and buffers of rank `from`, and the layout of the buckets of a wrapper. A process that
/// was started in the place of a lost rank takes its generators, too, the first time. Collective over all ranks of the
/// default group.
template <typename Net>
  requires(detail::is_restorable<Net>())
RestoreReport restore(Net& net, int from = 0) {
  return Restoration(from).add("net", net).run();
}
/// Does the same with the state and the options of an optimizer.
template <typename Net, typename Optimizer>
  requires(detail::is_restorable<Net>() && detail::is_restorable<Optimizer>())
RestoreReport restore(Net& net, Optimizer& optimizer, int from = 0) {
  return Restoration(from).add("net", net).add("optimizer", optimizer).run();
}

}  // namespace lockstep::ddp
