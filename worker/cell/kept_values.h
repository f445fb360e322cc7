// The values of last expressions, kept for later cells: `_7` is what cell 7 showed, `_` what was shown last.
//
// A number, a pointer, a tensor (its handle) and a temporary are kept as objects of their own; a class or an array that
// lives as long as the session (a variable of a cell) is that object under another name. What is a part of something
// that may go away, such as an element of a vector, is not kept.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <ios>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "worker/cell/show_kinds.h"

namespace lockstep::detail {

/// Keeps the object, which `destroy` ends, as the value of the running cell. `is_small`: it holds nothing but itself.
void keep_object(void* object, const std::type_info& type, bool is_small, void (*destroy)(void*));
/// Keeps the place of an object, if it is one that stays.
void keep_place(void* object, const std::type_info& type);
/// Returns the value of a cell. Throws std::out_of_range, with the reason, where this rank has none or another type's.
void* kept_value(int64_t cell, const std::type_info& type);

/// A copy of such a value is as good as the original, and costs nothing.
template <typename V>
inline constexpr bool kIsHandle = std::is_scalar_v<V> || std::is_same_v<V, at::Tensor> || SmartPointer<V> ||
                                  std::is_base_of_v<torch::detail::ModuleHolderIndicator, V>;

template <typename V, typename From>
void keep_own(From&& from) {
  keep_object(new V(std::forward<From>(from)), typeid(V), std::is_trivially_copyable_v<V>,
              [](void* object) { delete static_cast<V*>(object); });
}

/// T is what a forwarding reference has: an lvalue reference, or the type of a temporary.
template <typename T>
void keep(std::remove_reference_t<T>& value) {
  using Object = std::remove_reference_t<T>;
  using V = std::remove_cv_t<Object>;
  constexpr bool is_temporary = !std::is_lvalue_reference_v<T>;
  if constexpr (std::is_base_of_v<std::ios_base, V> || std::is_function_v<V> || std::is_volatile_v<Object>) {
    // It shows nothing, or is no object that can be kept.
  } else if constexpr (kIsHandle<V> && std::is_copy_constructible_v<V>) {
    keep_own<V>(value);
  } else if constexpr (!is_temporary) {
    keep_place(const_cast<V*>(std::addressof(value)), typeid(V));
  } else if constexpr (std::is_trivially_copyable_v<V> && std::is_copy_constructible_v<V>) {
    keep_own<V>(value);
  } else if constexpr (!std::is_const_v<Object> && !std::is_array_v<V> && std::is_move_constructible_v<V>) {
    keep_own<V>(std::move(value));
  }
}

}  // namespace lockstep::detail

/// `_7` refers to it: the compiler of cells declares it where a cell mentions it.
template <typename T>
T& __lockstep_kept_value(int64_t cell) {
  return *static_cast<T*>(lockstep::detail::kept_value(cell, typeid(std::remove_cv_t<T>)));
}
