// What running a step changes, kept and put back: so that a step can be run to look at it, and training goes on as if
// it had not been.
//
//   SavedState state(net, optimizer);    // and the random number generators, always
//   step();
//   state.restore();                     // as often as wanted
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

/// Keeps what it is given: modules, holders, pointers to them and DDP wrappers (parameters, buffers, gradients,
/// training mode, steps), optimizers (their state and options), tensors, generators, containers of these, and any other
/// value that can be copied and assigned. All generators of this rank are kept besides. The objects must outlive it.
/// save() and save_any() add to it.
///
/// Local. Bit by bit, into the same memory; version counters stay. Not put back: what a module holds without having
/// registered it, what a communication hook keeps (PowerSGD's), files, and other side effects. A wrapper whose first
/// synchronised forward came after it was kept starts with a new Reducer, as it was then.
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

  /// Any number of times, by the thread that made it.
  void restore() const;
  /// The same for running the step once more: wrappers keep the Reducer that they have now.
  void rewind() const;
  /// Whether a wrapper that had run steps before it was kept has still to lay its buckets out, which it does once: the
  /// step in which it does so is unlike those behind it.
  bool buckets_are_unsettled() const;

  void save(const torch::nn::Module& module);
  void save(const ddp::DistributedModule& wrapper);
  void save(torch::optim::Optimizer& optimizer);
  /// The handle, too: a name that is given another tensor gets its own back.
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
  requires !std::is_function_v<std::remove_reference_t<decltype(*object)>>;  // of a lambda without captures
} && !std::is_arithmetic_v<std::remove_cv_t<T>>;
template <typename T>
concept HoldsNumbers = std::ranges::range<T> && std::is_arithmetic_v<std::ranges::range_value_t<T>>;
template <typename T>
concept Dict = requires(T& dictionary) { dictionary.begin()->value(); };
template <typename T>
concept HoldsPairs = std::ranges::range<T> && requires { typename T::mapped_type; };
template <typename T>
inline constexpr bool kCantBeKept = false;

/// Whether `T` holds tensors that training changes, or points to what does: what a tool may take for the state of a
/// step.
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
    // A container that can be copied gets its own elements back. Until then they may move, so what they hold is saved
    // and not where they are.
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
                  "this can't be kept and put back: pass modules, optimizers, tensors, containers of them, or values "
                  "that can be copied");
  }
}

}  // namespace lockstep::inspect
