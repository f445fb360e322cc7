// Checks that all ranks wrap the same module with the same options, before anything is broadcast. Either all ranks go
// on or all throw the same text: c10d's own check throws on the odd rank only and leaves the others waiting.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::ddp::detail {

/// The properties of a parameter or buffer that have to agree, as text.
struct TensorDescription {
  std::string name;
  std::string shape;  // "[256, 64]"
  std::string dtype;  // "Float"
  std::string strides{};  // empty if it is contiguous
  std::string same_as{};  // the first name of the same tensor; empty if this is the first
  bool requires_grad = true;
  bool sparse = false;  // its gradient

  bool operator==(const TensorDescription&) const = default;
  /// Returns "[256, 64] Float (no gradient)".
  std::string text() const;
};

struct ReplicaDescription {
  std::vector<TensorDescription> tensors;
  // Each option has a name and a value; every rank has the same names in the same order.
  std::vector<std::pair<std::string, std::string>> options{};

  bool operator==(const ReplicaDescription&) const = default;
};

/// Describes `tensor`, without `same_as` and `sparse`.
TensorDescription describe(const std::string& name, const torch::Tensor& tensor);

/// Compares `mine` of all ranks of `group`. `problem`, if not empty, is why this rank can't wrap its module. Collective
/// (one all_gather of 32 bytes if all is well). Throws ArgumentError on every rank if a rank has a problem or differs.
void check_same_on_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, torch::Device device,
                             const ReplicaDescription& mine, const std::string& problem);

/// Returns the message for ranks that differ: which rank, which tensor, how to fix it. Empty if they agree. Pure.
std::string difference(const std::vector<ReplicaDescription>& ranks);

}  // namespace lockstep::ddp::detail
