// Finds the tensors in what a module's forward takes and returns: tensors themselves, optionals, pairs, tuples, arrays,
// vectors, maps and variants of them, and any struct for which a function `tensors_of` names its members:
//
//   struct Output { torch::Tensor logits, loss; };
//   auto tensors_of(Output& output) { return std::tie(output.logits, output.loss); }
#pragma once
#include <torch/torch.h>

#include <array>
#include <list>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::ddp::detail {

using TensorPointers = std::vector<torch::Tensor*>;

template <class T>
concept HasTensorsOf = requires(T& value) { tensors_of(value); };

/// Says which types may hold tensors, and collects them. The primary template is for types with tensors_of(), and for
/// those without tensors.
template <class T>
struct TensorTree {
  static constexpr bool kHasTensors = HasTensorsOf<T>;
  static void collect(T& value, TensorPointers& found) {
    if constexpr (kHasTensors) {
      std::apply(
          [&](auto&... member) { (TensorTree<std::remove_cvref_t<decltype(member)>>::collect(member, found), ...); },
          tensors_of(value));
    }
  }
};

template <>
struct TensorTree<torch::Tensor> {
  static constexpr bool kHasTensors = true;
  static void collect(torch::Tensor& value, TensorPointers& found) { found.push_back(&value); }
};

template <class T>
struct TensorTree<std::optional<T>> {
  static constexpr bool kHasTensors = TensorTree<T>::kHasTensors;
  static void collect(std::optional<T>& value, TensorPointers& found) {
    if (value) TensorTree<T>::collect(*value, found);
  }
};

/// A sequence of T is a vector, list or array.
template <class Sequence, class T>
struct TensorSequence {
  static constexpr bool kHasTensors = TensorTree<T>::kHasTensors;
  static void collect(Sequence& value, TensorPointers& found) {
    if constexpr (kHasTensors) {
      for (auto& element : value) TensorTree<T>::collect(element, found);
    }
  }
};
template <class T>
struct TensorTree<std::vector<T>> : TensorSequence<std::vector<T>, T> {};
template <class T>
struct TensorTree<std::list<T>> : TensorSequence<std::list<T>, T> {};
template <class T, size_t N>
struct TensorTree<std::array<T, N>> : TensorSequence<std::array<T, N>, T> {};

/// In a map to T the mapped values count, keys do not.
template <class Map, class T>
struct TensorMap {
  static constexpr bool kHasTensors = TensorTree<T>::kHasTensors;
  static void collect(Map& value, TensorPointers& found) {
    if constexpr (kHasTensors) {
      for (auto& item : value) {
        if constexpr (requires { item.second; }) {
          TensorTree<T>::collect(item.second, found);
        } else {
          TensorTree<T>::collect(item.value(), found);
        }
      }
    }
  }
};
template <class K, class T>
struct TensorTree<std::map<K, T>> : TensorMap<std::map<K, T>, T> {};
template <class K, class T>
struct TensorTree<std::unordered_map<K, T>> : TensorMap<std::unordered_map<K, T>, T> {};
template <class K, class T>
struct TensorTree<torch::OrderedDict<K, T>> : TensorMap<torch::OrderedDict<K, T>, T> {};

template <class... Ts>
struct TensorTree<std::tuple<Ts...>> {
  static constexpr bool kHasTensors = (TensorTree<std::remove_cvref_t<Ts>>::kHasTensors || ...);
  static void collect(std::tuple<Ts...>& value, TensorPointers& found) {
    std::apply(
        [&](auto&... member) { (TensorTree<std::remove_cvref_t<decltype(member)>>::collect(member, found), ...); },
        value);
  }
};
template <class A, class B>
struct TensorTree<std::pair<A, B>> {
  static constexpr bool kHasTensors = TensorTree<A>::kHasTensors || TensorTree<B>::kHasTensors;
  static void collect(std::pair<A, B>& value, TensorPointers& found) {
    TensorTree<A>::collect(value.first, found);
    TensorTree<B>::collect(value.second, found);
  }
};
template <class... Ts>
struct TensorTree<std::variant<Ts...>> {
  static constexpr bool kHasTensors = (TensorTree<Ts>::kHasTensors || ...);
  static void collect(std::variant<Ts...>& value, TensorPointers& found) {
    std::visit([&](auto& held) { TensorTree<std::remove_cvref_t<decltype(held)>>::collect(held, found); }, value);
  }
};

}  // namespace lockstep::ddp::detail
