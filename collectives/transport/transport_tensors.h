// Prepares tensors for a transport, which takes them dense, contiguous, and of a dtype that it knows. A caller's tensor
// that is not is replaced by a view of it, or by a copy; results are copied back when the transport is done.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::dist {

/// Whether Gloo has that dtype. It has no complex ones, which are passed as pairs of real numbers.
bool transport_knows(at::ScalarType type);
/// Whether ProcessGroupNCCL has that dtype.
bool nccl_knows(at::ScalarType type);

/// Names who takes the tensors. On a device, Gloo copies them to the host itself.
enum class Wire { gloo, nccl };

/// The tensors of one collective. They must have been checked (check_tensor), and gradient mode must be off.
class TransportTensors {
 public:
  explicit TransportTensors(Wire wire = Wire::gloo) : wire_(wire) {}

  /// Returns what the transport reads in place of `tensor`. Shapes are the caller's, except that complex numbers have
  /// one dimension more, and dtypes that the transport does not know are bytes along the last dimension.
  at::Tensor read(const at::Tensor& tensor);
  /// Returns what the transport writes to, without reading it.
  at::Tensor write(const at::Tensor& tensor);
  /// Returns what the transport reads and writes to.
  at::Tensor update(const at::Tensor& tensor);
  std::vector<at::Tensor> read(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> write(const std::vector<at::Tensor>& tensors);
  std::vector<at::Tensor> update(const std::vector<at::Tensor>& tensors);

  /// The transport writes `from`, a part of one buffer for several results, which belongs into `to`, one of write() or
  /// update().
  void unpack(const at::Tensor& to, const at::Tensor& from) { parts_.emplace_back(to, from); }
  /// Does the same for all of `to`, which lie in `buffer` one after the other.
  void unpack_all(const std::vector<at::Tensor>& to, const at::Tensor& buffer);
  /// Returns what unpacks and copies back, to be called once when the transport is done; empty if nothing is to do.
  std::function<void()> finish() const;

 private:
  at::Tensor in_known_dtype(const at::Tensor& tensor) const;

  Wire wire_;
  using Copies = std::vector<std::pair<at::Tensor, at::Tensor>>;  // to, from
  Copies parts_, copies_;
};

/// Enters inference mode where `tensor` is one of it, which may be written to there only.
class WritableGuard {
 public:
  explicit WritableGuard(const at::Tensor& tensor) {
    if (tensor.is_inference()) mode_.emplace();
  }

 private:
  const at::NoGradGuard no_grad_;
  std::optional<c10::InferenceMode> mode_;  // with `false` it would turn gradients on
};

/// Returns a view in one dimension. `tensor` is contiguous.
at::Tensor flat(const at::Tensor& tensor);
/// Returns all elements one after the other, in a new tensor. Needs one tensor or more, all of one dtype.
at::Tensor packed(const std::vector<at::Tensor>& tensors);
/// Whether the two may have bytes in common: whether the ranges from their first to their last byte overlap.
bool may_share_memory(const at::Tensor& a, const at::Tensor& b);

}  // namespace lockstep::dist
