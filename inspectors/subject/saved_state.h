// Saves and restores what a step changes, so that an inspector can run a step and training continues as if it had not.
//
//   SavedState state(net, optimizer);    // and the random number generators, always
//   step();
//   state.restore();                     // any number of times
#pragma once
#include <torch/torch.h>

#include <concepts>
#include <functional>
#include <memory>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/distributed_module.h"

namespace lockstep::inspect {

/// Saves modules, holders, pointers to them and DDP wrappers (parameters, buffers, gradients, training mode, steps),
/// optimizers (state and options), tensors, generators, containers of these, and other values that can be copied and
/// assigned; also all generators of this rank. The objects must outlive it. save() and save_any() add objects.
///
/// Local. Restores bit by bit, into the same memory, and leaves version counters unchanged. Not restored: members of a
/// module that are not registered, the state of communication hooks (PowerSGD), files, and other side effects. A
/// wrapper without a synchronised forward at the time of saving gets a new Reducer.
class SavedState {
 public:
  template <typename... T>
    requires(!std::same_as<std::remove_cvref_t<T>, SavedState> && ...)
  explicit SavedState(T&... objects) : SavedState() {
    (save_any(objects), ...);
  }
  SavedState();
  ~SavedState();
  SavedState(const SavedState&) = delete;
  SavedState& operator=(const SavedState&) = delete;

  /// May be called any number of times, on the thread that made it.
  void restore() const;
  /// Restores for running the step again: wrappers keep their current Reducer.
  void rewind() const;
  /// Whether a wrapper that had run steps before it was saved has yet to lay out its buckets. It does so once, in a
  /// step that differs from the later ones.
  bool buckets_are_unsettled() const;

  void save(const torch::nn::Module& module);
  void save(const ddp::DistributedModule& wrapper);
  void save(torch::optim::Optimizer& optimizer);
  /// Also saves the handle: a variable that is assigned another tensor gets its tensor back.
  void save(at::Tensor& tensor);
  void save(const at::Tensor& tensor);
  void save(const at::Generator& generator);

  template <typename T>
  void save_any(T& object);

 private:
  struct Kept;
  void save_later(std::function<void()> restore);

  std::unique_ptr<Kept> kept_;
};

namespace detail {
template <typename T>
concept LeadsToModule = requires(T& object) {
  { object.operator->() } -> std::convertible_to<const torch::nn::Module*>;
};
template <typename T>
concept LeadsToObject = requires(T& object) {
  *object;
  static_cast<bool>(object);
  requires !std::is_function_v<std::remove_reference_t<decltype(*object)>>;  // a lambda without captures converts to it
} && !std::is_arithmetic_v<std::remove_cv_t<T>>;
template <typename T>
concept HoldsNumbers = std::ranges::range<T> && std::is_arithmetic_v<std::ranges::range_value_t<T>>;
template <typename T>
concept Dict = requires(T& dictionary) { dictionary.begin()->value(); };
template <typename T>
concept HoldsPairs = std::ranges::range<T> && requires { typename T::mapped_type; };
template <typename T>
inline constexpr bool kCantBeKept = false;

/// Whether `T` holds or points to tensors that training changes, so that it may be state of a step.
template <typename T>
constexpr bool restorable() {
  if constexpr (std::derived_from<T, ddp::DistributedModule> || std::derived_from<T, torch::nn::Module> ||
                std::derived_from<T, torch::optim::Optimizer> || std::derived_from<T, at::Tensor> || LeadsToModule<T>)
    return true;
  else if constexpr (requires { typename T::element_type; })
    return restorable<std::remove_cv_t<typename T::element_type>>();
  else
    return false;
}
}  // namespace detail

template <typename T>
void SavedState::save_any(T& object) {
  using Value = std::remove_const_t<T>;
  if constexpr (std::derived_from<Value, ddp::DistributedModule>) {
    save(static_cast<const ddp::DistributedModule&>(object));
  } else if constexpr (std::derived_from<Value, torch::nn::Module>) {
    save(static_cast<const torch::nn::Module&>(object));
  } else if constexpr (std::derived_from<Value, torch::optim::Optimizer>) {
    save(const_cast<torch::optim::Optimizer&>(static_cast<const torch::optim::Optimizer&>(object)));
  } else if constexpr (std::derived_from<Value, at::Tensor>) {
    save(static_cast<std::conditional_t<std::is_const_v<T>, const at::Tensor&, at::Tensor&>>(object));
  } else if constexpr (std::same_as<Value, at::Generator>) {
    save(object);
  } else if constexpr (std::same_as<Value, torch::nn::AnyModule>) {
    save(*object.ptr());
  } else if constexpr (detail::LeadsToModule<Value>) {
    if (const torch::nn::Module* module = const_cast<Value&>(object).operator->()) save(*module);
  } else if constexpr (detail::LeadsToObject<T>) {
    if (object) save_any(*object);
  } else if constexpr (detail::Dict<T> ||
                       (std::ranges::range<T> && !detail::HoldsNumbers<T> && !std::convertible_to<T, std::string>)) {
    const auto save_element = [this](auto& each) {
      if constexpr (detail::Dict<T>)
        this->save_any(each.value());
      else if constexpr (detail::HoldsPairs<T>)
        this->save_any(each.second);
      else
        this->save_any(each);
    };
    // A container that can be copied is assigned its copy. Its elements may move until then, so their contents are
    // saved, not their addresses.
    if constexpr (std::copyable<Value> && !std::is_const_v<T>) {
      save_later([&object, before = object] { object = before; });
      for (const auto& each : std::as_const(object)) save_element(each);
    } else {
      for (auto& each : object) save_element(each);
    }
  } else if constexpr (std::copyable<Value>) {
    if constexpr (!std::is_const_v<T>) save_later([&object, before = object] { object = before; });
  } else {
    static_assert(detail::kCantBeKept<T>,
                  "this can't be saved and restored: pass modules, optimizers, tensors, containers of them, or values "
                  "that can be copied");
  }
}

}  // namespace lockstep::inspect
