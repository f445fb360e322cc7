// Tells what an object of a training program is: a module, a wrapper, an optimizer, a holder of or a pointer to one of
// these.
#pragma once
#include <torch/torch.h>

#include <concepts>
#include <type_traits>
#include <utility>

#include "ddp/distributed_module.h"

namespace lockstep::ddp::detail {

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

template <typename T>
concept Schedules =
    std::derived_from<T, torch::optim::LRScheduler> || std::derived_from<T, torch::optim::ReduceLROnPlateauScheduler>;

/// Whether visit_trained() finds something in a T.
template <typename T>
constexpr bool is_trained() {
  using Object = std::remove_cv_t<T>;
  if constexpr (std::derived_from<Object, torch::nn::Module> || std::derived_from<Object, torch::optim::Optimizer> ||
                std::derived_from<Object, DistributedModule> || HoldsModule<Object> || Schedules<Object>)
    return true;
  else if constexpr (PointsToObject<Object>)
    return is_trained<std::remove_cvref_t<decltype(*std::declval<const Object&>())>>();
  else
    return false;
}

/// A reference to a function is one, too.
template <typename T>
auto& without_const(T& given) {
  if constexpr (std::is_function_v<T>)
    return given;
  else
    return const_cast<std::remove_cv_t<T>&>(given);
}

/// Calls wrapper(DistributedModule&), module(torch::nn::Module&), optimizer(torch::optim::Optimizer&) or schedule() of
/// the visitor; none of them where a pointer or a holder is empty.
template <typename T, typename Visitor>
void visit_trained(T& given, Visitor& visitor) {
  using Object = std::remove_cv_t<T>;
  auto& object = without_const(given);
  if constexpr (std::derived_from<Object, DistributedModule>) {
    visitor.wrapper(object);
  } else if constexpr (std::derived_from<Object, torch::nn::Module>) {
    visitor.module(object);
  } else if constexpr (std::derived_from<Object, torch::optim::Optimizer>) {
    visitor.optimizer(object);
  } else if constexpr (Schedules<Object>) {
    visitor.schedule();
  } else if constexpr (requires { *object.module(); } && HoldsModule<Object>) {
    visitor.module(*object.module());
  } else if constexpr (HoldsModule<Object>) {
    bool is_empty = false;
    if constexpr (requires { object.is_empty(); }) is_empty = object.is_empty();
    if (!is_empty) visitor.module(*object.ptr());
  } else if constexpr (is_trained<Object>()) {
    if (object) visit_trained(*object, visitor);
  }
}

}  // namespace lockstep::ddp::detail
