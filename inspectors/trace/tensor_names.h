// Knows the user's names of tensors: parameters and buffers of modules, by identity.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "inspectors/subject/subject.h"

namespace lockstep::inspect {

struct TensorName {
  std::string object;  // "net"
  std::string name;  // "layer0.up.weight"
  std::string kind;  // "parameter", "buffer", "tensor"
  std::weak_ptr<const torch::nn::Module> wrapped;  // the module, if it has a wrapper

  /// Returns the steps of the wrapper; nothing without one.
  std::optional<int64_t> steps() const;

  /// Returns "layer0.up", its module; the object for a parameter of its own; empty for a bare tensor.
  std::string module() const;
};

class TensorNames {
 public:
  /// Adds parameters and buffers of a module. Tensors that have a name keep it, but their wrapper is updated.
  void learn(const std::string& object, const torch::nn::Module& module);
  void learn(const std::string& name, const at::Tensor& tensor);
  /// Adds a parameter or buffer of a module that is not LibTorch's: of a Python job.
  void learn(TensorName name, const at::Tensor& tensor);
  /// Looks up by identity (at::Tensor::unsafeGetTensorImpl); null for a tensor without a name.
  const TensorName* find(const void* tensor) const;
  const TensorName* find(const at::Tensor& tensor) const { return find(tensor.unsafeGetTensorImpl()); }
  bool empty() const { return names_.empty(); }
  void merge(const TensorNames& other) { names_.insert(other.names_.begin(), other.names_.end()); }

 private:
  std::map<const void*, TensorName> names_;
};

namespace detail {

template <typename T>
concept HasParameters = std::derived_from<T, torch::nn::Module> || std::derived_from<T, ddp::DistributedModule> ||
                        Holder<T> || WithModule<T>;

/// Adds the parameters of `object` under `name`; nothing for objects without parameters, null pointers and empty
/// holders.
template <typename T>
void learn_names(TensorNames& names, const std::string& name, const T& object) {
  if constexpr (requires {
                  object.is_empty();
                  object.ptr();
                }) {
    if (object.is_empty()) return;
  }
  if constexpr (std::derived_from<T, torch::nn::Module>) {
    names.learn(name, object);
  } else if constexpr (std::derived_from<T, at::Tensor>) {
    names.learn(name, static_cast<const at::Tensor&>(object));
  } else if constexpr (std::derived_from<T, ddp::DistributedModule> || WithModule<T>) {
    names.learn(name, *object.module());
  } else if constexpr (Holder<T>) {
    names.learn(name, *object.ptr());
  } else if constexpr (requires {
                         typename T::element_type;
                         *object;
                         static_cast<bool>(object);
                       }) {
    if constexpr (HasParameters<std::remove_cv_t<typename T::element_type>>) {
      if (object) learn_names(names, name, *object);
    }
  }
}

}  // namespace detail
}  // namespace lockstep::inspect
