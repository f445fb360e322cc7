// Do all ranks wrap the same module, with the same options? Answered on every rank alike before anything is broadcast, so that
// either all go on or all throw the same text: c10d's own check throws on the odd rank only and leaves the others waiting.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::ddp::detail {

/// What has to agree of a parameter or buffer, as text.
struct TensorDescription {
  std::string name;
  std::string shape;  // "[256, 64]"
  std::string dtype;  // "Float"
  std::string strides{};  // empty where it is contiguous
  std::string same_as{};  // the name under which the same tensor came before; empty where it came under none
  bool requires_grad = true;
  bool sparse = false;  // its gradient

  bool operator==(const TensorDescription&) const = default;
  /// "[256, 64] Float (no gradient)"
  std::string text() const;
};

struct ReplicaDescription {
  std::vector<TensorDescription> tensors;
  std::vector<std::pair<std::string, std::string>>
      options{};  // name and value, the same names in the same order everywhere

  bool operator==(const ReplicaDescription&) const = default;
};

/// Of one tensor, by itself.
TensorDescription describe(const std::string& name, const torch::Tensor& tensor);

/// Compares `mine` of all ranks of `group`. `problem`, if not empty, is why this rank can't go on anyway. Collective (one
/// all_gather of 32 bytes where all is well). Throws std::runtime_error on every rank when a rank has a problem or differs.
void check_same_on_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, torch::Device device,
                             const ReplicaDescription& mine, const std::string& problem);

/// What to say when ranks differ: which rank, which tensor, what to do about it. Empty when they do not. Pure.
std::string difference(const std::vector<ReplicaDescription>& ranks);

}  // namespace lockstep::ddp::detail
