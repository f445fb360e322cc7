// The items that are compared between ranks: named tensors and values of modules, DDP wrappers, optimizers, tensors,
// random number generators, containers and plain values. All of this is local, and copies no tensor.
#pragma once
#include <torch/torch.h>

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/distributed_module.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "protocol/finding.h"
#include "protocol/rank_set.h"
#include "protocol/verdict.h"

namespace lockstep::inspect {

struct Item {
  std::string name;
  FindingKind kind = FindingKind::value;
  at::Tensor tensor;  // undefined if the item is a value
  std::string value;  // as text, different for different values; of a generator the seed, which is not compared
  bool trainable = false;  // a parameter's requires_grad
};

/// Says what makes an `ok` about an object untrue although it is equal on all ranks.
struct Doubt {
  Severity severity = Severity::fault;
  Verdict verdict = Verdict::missing;
  FindingKind kind = FindingKind::parameter;
  std::string text;
};

struct Subject {
  std::string name;  // the user's; may be empty
  std::string type;  // "module", "optimizer", "tensor", …
  std::vector<Item> items;
  bool buffers_are_local = false;  // each rank has its own, since the wrapper has broadcast_buffers = false
  bool buffers_are_written = false;  // a forward has run since the wrapper made them equal
  std::optional<int64_t> step;
  std::optional<ddp::DistributedModule> wrapper;  // of the module
  std::vector<Item> unseen;  // of a saved file: bytes and attributes that belong to no tensor or value
  std::vector<at::Tensor> stepped;  // the tensors that an optimizer's step changes
  std::optional<Doubt> doubt;  // the same on ranks whose items are equal
  std::optional<Hash> dropout;  // the state of the generator that it draws from, where dropout is on
  std::optional<Hash> inputs;  // of the last forward, where they were observed
};

/// Stands for all generators of this rank: `verify(inspect::rng())`.
struct Rng {};
inline Rng rng() { return {}; }

/// Adds parameters and buffers, and whether the module and its submodules are in train() or eval(). A module that has a
/// wrapper is treated as the wrapper.
void describe(Subject& subject, const std::string& prefix, const torch::nn::Module& module);
void describe(Subject& subject, const std::string& prefix, const ddp::DistributedModule& module);
/// Adds state by parameter: `0.exp_avg` is that of the first parameter of the first group, `1.0.exp_avg` that of the
/// second group's first; and hyper-parameters of each group. An optimizer of a type that LibTorch does not have is
/// compared by its learning rates alone, and an `unsupported` item says so.
void describe(Subject& subject, const std::string& prefix, const torch::optim::Optimizer& optimizer);
void describe(Subject& subject, const std::string& prefix, const at::Tensor& tensor);
void describe(Subject& subject, const std::string& prefix, const at::Generator& generator);
void describe(Subject& subject, const std::string& prefix, Rng);
void describe_value(Subject& subject, const std::string& prefix, const nlohmann::json& value);

/// Returns the state of the generator from which a module with parameters like `parameter` draws on this rank.
Hash generator_state_for(const at::Tensor& parameter);

/// Appends a number to names that occur again: "a.b#2". Keys with dots can make equal names, by which items would be
/// confused.
void number_equal_names(std::vector<Item>& items);

namespace detail {

template <typename T>
concept Holder = requires(const T& holder) {
  typename T::ContainedType;
  { *holder.ptr() } -> std::convertible_to<const torch::nn::Module&>;
};
template <typename T>
concept Pointer = requires(const T& pointer) {
  { *pointer };
  { static_cast<bool>(pointer) };
  // A lambda without captures converts to a pointer to a function, which dereferences to a function again.
  requires !std::is_function_v<std::remove_reference_t<decltype(*pointer)>>;
} && !std::is_arithmetic_v<T>;
template <typename T>
concept WithModule = requires(const T& wrapper) {
  { *wrapper.module() } -> std::convertible_to<const torch::nn::Module&>;
};
template <typename T>
concept OrderedDictionary = requires(const T& dictionary) {
  typename T::Item;
  dictionary.begin()->key();
  dictionary.begin()->value();
};
template <typename T>
concept Dictionary = std::ranges::range<T> && requires { typename T::mapped_type; };
template <typename T>
concept Tuple = requires { typename std::tuple_size<T>::type; };
template <typename T>
concept Value = std::is_arithmetic_v<T> || std::is_convertible_v<T, std::string> || std::same_as<T, nlohmann::json>;
template <typename T>
concept SyncsGradients = requires(T& object) { object.sync_gradients(); };
template <typename T>
inline constexpr bool kNotSupported = false;

inline std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}
template <typename K>
std::string key_text(const K& key) {
  if constexpr (std::is_convertible_v<K, std::string>)
    return key;
  else
    return nlohmann::json(key).dump();
}

}  // namespace detail

/// Adds the items of `object`. Dictionaries without an order are sorted by their keys.
template <typename T>
void describe_any(Subject& subject, const std::string& prefix, const T& object) {
  if constexpr (std::derived_from<T, ddp::DistributedModule>) {
    describe(subject, prefix, static_cast<const ddp::DistributedModule&>(object));
  } else if constexpr (std::derived_from<T, torch::nn::Module>) {
    describe(subject, prefix, static_cast<const torch::nn::Module&>(object));
  } else if constexpr (std::derived_from<T, torch::optim::Optimizer>) {
    describe(subject, prefix, static_cast<const torch::optim::Optimizer&>(object));
  } else if constexpr (std::same_as<T, torch::nn::AnyModule> || detail::Holder<T>) {
    describe(subject, prefix, static_cast<const torch::nn::Module&>(*object.ptr()));
  } else if constexpr (detail::WithModule<T>) {
    describe(subject, prefix, static_cast<const torch::nn::Module&>(*object.module()));
    if constexpr (detail::SyncsGradients<T>)
      subject.buffers_are_local = true;  // the hand-written loop does not broadcast them
  } else if constexpr (std::derived_from<T, at::Tensor>) {
    describe(subject, prefix, static_cast<const at::Tensor&>(object));
  } else if constexpr (std::same_as<T, at::Generator>) {
    describe(subject, prefix, object);
  } else if constexpr (std::same_as<T, Rng>) {
    describe(subject, prefix, object);
  } else if constexpr (detail::Value<T>) {
    describe_value(subject, prefix, object);
  } else if constexpr (std::is_enum_v<T>) {
    describe_value(subject, prefix, static_cast<std::underlying_type_t<T>>(object));
  } else if constexpr (detail::OrderedDictionary<T>) {
    for (const auto& item : object)
      describe_any(subject, detail::joined(prefix, detail::key_text(item.key())), item.value());
    if (object.begin() == object.end()) describe_value(subject, prefix, nlohmann::json::object());
  } else if constexpr (detail::Dictionary<T>) {
    std::map<std::string, const typename T::mapped_type*> sorted;
    for (const auto& [key, value] : object) sorted[detail::key_text(key)] = &value;
    for (const auto& [key, value] : sorted) describe_any(subject, detail::joined(prefix, key), *value);
    if (sorted.empty()) describe_value(subject, prefix, nlohmann::json::object());
  } else if constexpr (std::ranges::range<T>) {
    using Element = std::ranges::range_value_t<T>;
    if constexpr (std::is_arithmetic_v<Element>) {
      describe_value(subject, prefix,
                     nlohmann::json(std::vector<Element>(std::ranges::begin(object), std::ranges::end(object))));
    } else {
      size_t index = 0;
      for (const auto& each : object) describe_any(subject, prefix + "[" + std::to_string(index++) + "]", each);
      if (index == 0) describe_value(subject, prefix, nlohmann::json::array());
    }
  } else if constexpr (detail::Pointer<T>) {
    if (object)
      describe_any(subject, prefix, *object);
    else
      describe_value(subject, prefix, nullptr);
  } else if constexpr (detail::Tuple<T>) {
    std::apply(
        [&](const auto&... each) {
          size_t index = 0;
          (describe_any(subject, prefix + "[" + std::to_string(index++) + "]", each), ...);
        },
        object);
  } else {
    static_assert(detail::kNotSupported<T>,
                  "inspect can't look into this type: pass a module, an optimizer, a tensor, numbers, strings or "
                  "containers of them");
  }
}

template <typename T>
Subject subject_of(const T& object, std::string name) {
  Subject subject;
  subject.name = std::move(name);
  describe_any(subject, "", object);
  number_equal_names(subject.items);
  return subject;
}

/// Returns the ranks of the wrapper's group that are among `alive`.
RankSet ranks_of(const ddp::DistributedModule& wrapper, const RankSet& alive);

}  // namespace lockstep::inspect
