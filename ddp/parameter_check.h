// Do all ranks wrap the same module? Answered on every rank alike before anything is broadcast, so that either all go on or all
// throw the same text: c10d's own check throws on the odd rank only and leaves the others waiting.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::ddp::detail {

/// One tensor: its name and what has to agree, as text ("[256, 64] Float, strides [64, 1]").
using TensorDescription = std::pair<std::string, std::string>;

TensorDescription describe(const std::string& name, const torch::Tensor& tensor);

/// Compares `tensors` of all ranks of `group`. `problem`, if not empty, is why this rank can't go on anyway. Collective (one
/// all_gather of 32 bytes where all is well). Throws std::runtime_error on every rank when a rank has a problem or differs.
void check_same_on_all_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group, torch::Device device,
                             const std::vector<TensorDescription>& tensors, const std::string& problem);

/// What to say when ranks differ: which rank, which tensor. Empty when they do not. Pure.
std::string difference(const std::vector<std::vector<TensorDescription>>& ranks);

}  // namespace lockstep::ddp::detail
