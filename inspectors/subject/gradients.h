// Collects the parameters whose gradients are inspected: of a module, a wrapper, an optimizer or a container of
// tensors, by name, each once. Local.
#pragma once
#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "ddp/distributed_module.h"
#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

struct GradientOwner {
  std::string name;  // of the parameter
  at::Tensor parameter;
};

/// A wrapper that reduces gradients and is not this library's, such as torch.nn.parallel.DistributedDataParallel.
struct OtherWrapper {
  bool skips_unused = false;  // parameters without a gradient are intended: find_unused_parameters, static_graph
  bool last_forward_was_local = false;  // it ran under no_sync()
};

struct GradientSubject {
  std::string name;  // the user's; may be empty
  std::string type;  // "module", "optimizer", …
  std::vector<GradientOwner> parameters;
  std::optional<ddp::DistributedModule> wrapper;  // that reduces the gradients
  std::optional<OtherWrapper> other_wrapper;  // the same
  bool averages_in_a_loop = false;  // it has sync_gradients(), as the simple class, which makes gradients the mean
};

/// Leaves out the parameters that the wrapper ignores, since nothing reduces them. A module that has a wrapper is
/// treated as the wrapper.
void collect(GradientSubject& subject, const std::string& prefix, const ddp::DistributedModule& wrapper);
void collect(GradientSubject& subject, const std::string& prefix, const torch::nn::Module& module);
void collect(GradientSubject& subject, const std::string& prefix, const torch::optim::Optimizer& optimizer);
void collect(GradientSubject& subject, const std::string& prefix, const at::Tensor& parameter);

namespace detail {

template <typename T>
concept PointsToModule = requires(T& wrapper) {
  { *wrapper.operator->() } -> std::convertible_to<const torch::nn::Module&>;
};
template <typename T>
concept WithParameters = requires(T& object) {
  { object.parameters() } -> std::convertible_to<std::vector<at::Tensor>>;
};

}  // namespace detail

template <typename T>
void collect_any(GradientSubject& subject, const std::string& prefix, const T& object) {
  T& accessible = const_cast<T&>(object);  // users' accessors may not be const; nothing is changed
  if constexpr (detail::SyncsGradients<T>) subject.averages_in_a_loop = true;
  if constexpr (std::derived_from<T, ddp::DistributedModule>) {
    collect(subject, prefix, static_cast<const ddp::DistributedModule&>(object));
  } else if constexpr (std::derived_from<T, torch::nn::Module>) {
    collect(subject, prefix, static_cast<const torch::nn::Module&>(object));
  } else if constexpr (std::derived_from<T, torch::optim::Optimizer>) {
    collect(subject, prefix, static_cast<const torch::optim::Optimizer&>(object));
  } else if constexpr (std::same_as<T, torch::nn::AnyModule> || detail::Holder<T>) {
    collect(subject, prefix, static_cast<const torch::nn::Module&>(*object.ptr()));
  } else if constexpr (detail::WithModule<T>) {
    collect(subject, prefix, static_cast<const torch::nn::Module&>(*object.module()));
  } else if constexpr (std::derived_from<T, at::Tensor>) {
    collect(subject, prefix, static_cast<const at::Tensor&>(object));
  } else if constexpr (detail::OrderedDictionary<T>) {
    for (const auto& item : object)
      collect_any(subject, detail::joined(prefix, detail::key_text(item.key())), item.value());
  } else if constexpr (detail::Dictionary<T>) {
    std::map<std::string, const typename T::mapped_type*> sorted;
    for (const auto& [key, value] : object) sorted[detail::key_text(key)] = &value;
    for (const auto& [key, value] : sorted) collect_any(subject, detail::joined(prefix, key), *value);
  } else if constexpr (std::ranges::range<T>) {
    size_t index = 0;
    for (const auto& each : object) collect_any(subject, prefix + "[" + std::to_string(index++) + "]", each);
  } else if constexpr (detail::PointsToModule<T>) {
    if (auto* module = accessible.operator->())
      collect(subject, prefix, static_cast<const torch::nn::Module&>(*module));
  } else if constexpr (detail::Pointer<T>) {
    if (object) collect_any(subject, prefix, *object);
  } else if constexpr (detail::WithParameters<T>) {
    size_t index = 0;
    for (const at::Tensor& each : accessible.parameters()) collect(subject, std::to_string(index++), each);
  } else {
    static_assert(
        detail::kNotSupported<T>,
        "inspect can't find parameters in this type: pass a module, a wrapper of one, an optimizer, or tensors");
  }
}

template <typename T>
GradientSubject gradients_of(const T& object, std::string name) {
  GradientSubject subject;
  subject.name = std::move(name);
  collect_any(subject, "", object);
  return subject;
}

/// Returns a gradient as strided tensors: a sparse one as its values, followed by their indices.
std::vector<at::Tensor> strided_parts(const at::Tensor& gradient);
/// Returns one for each gradient. A sparse one has the hash of values and indices, and the rest of the values.
std::vector<Fingerprint> gradient_fingerprints(const std::vector<at::Tensor>& gradients);

}  // namespace lockstep::inspect
