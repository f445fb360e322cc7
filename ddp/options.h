// The options of DistributedDataParallel and of join() are those of PyTorch's class under PyTorch's names, set like
// LibTorch's options. docs/ddp.md compares them one by one.
#pragma once
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::ddp {

/// Keeps parameters and inputs in low precision during forward and backward, and in full precision for the optimizer.
struct MixedPrecision {
  /// Type of parameters and of floating-point inputs in forward and backward. Unset: unchanged.
  TORCH_ARG(std::optional<torch::ScalarType>, param_dtype) = std::nullopt;
  /// Type in which gradients are sent. Unset: param_dtype.
  TORCH_ARG(std::optional<torch::ScalarType>, reduce_dtype) = std::nullopt;
  /// Type of floating-point buffers from the construction on. Unset: unchanged.
  TORCH_ARG(std::optional<torch::ScalarType>, buffer_dtype) = std::nullopt;
};

using NamedParameters = std::vector<std::pair<std::string, torch::Tensor>>;

struct Options {
  /// The one device that holds the module; inputs are moved to it. Empty on a CPU or for a module on several devices.
  TORCH_ARG(std::vector<torch::Device>, device_ids) = {};
  /// The device of the outputs of a module on one GPU. Unset: device_ids[0].
  TORCH_ARG(std::optional<torch::Device>, output_device) = std::nullopt;
  /// The batch's dimension. No effect: it mattered when one process had several devices.
  TORCH_ARG(int64_t, dim) = 0;
  /// Before each synchronised forward, every rank takes rank 0's buffers (running statistics, for example).
  TORCH_ARG(bool, broadcast_buffers) = true;
  /// On construction: check that the ranks have the same parameters, then all take rank 0's values.
  TORCH_ARG(bool, init_sync) = true;
  /// The ranks that train together. Unset: the default group.
  TORCH_ARG(c10::intrusive_ptr<c10d::ProcessGroup>, process_group) = {};
  /// Largest size of a bucket in MiB. Unset: 25, with a first bucket of 1 MiB.
  TORCH_ARG(std::optional<double>, bucket_cap_mb) = std::nullopt;
  /// Largest sizes of the first, second, … bucket in MiB; the last is for all that follow. Overrides bucket_cap_mb.
  TORCH_ARG(std::vector<double>, bucket_cap_mb_list) = {};
  /// Search each graph for parameters that take no part in it, so that no rank waits for their gradients. Costs a walk
  /// over the graph in each step.
  TORCH_ARG(bool, find_unused_parameters) = false;
  /// No effect, as in PyTorch: the Reducer always finishes its reductions.
  TORCH_ARG(bool, check_reduction) = false;
  /// Gradients are views into the buckets. This saves one copy of the gradients, and the copying in and out. No effect
  /// with mixed_precision.
  TORCH_ARG(bool, gradient_as_bucket_view) = false;
  /// The graph is the same in every step: unused parameters are found once, and re-entrant backward is allowed.
  TORCH_ARG(bool, static_graph) = false;
  /// Parameters whose gradients are reduced together, outside of the buckets, once param_to_hook_all_reduce has its
  /// gradient.
  TORCH_ARG(NamedParameters, delay_all_reduce_named_params) = {};
  TORCH_ARG(torch::Tensor, param_to_hook_all_reduce) = {};
  TORCH_ARG(std::optional<MixedPrecision>, mixed_precision) = std::nullopt;
  /// Do not reduce parameters that find_unused_parameters found unused. They must be the same ones on every rank.
  TORCH_ARG(bool, skip_all_reduce_unused_params) = false;
  /// Names of parameters and buffers that are neither made equal nor reduced.
  TORCH_ARG(std::vector<std::string>, ignored_parameters) = {};
  /// With LibTorch 2.12 or newer: copy all gradients of a bucket in one go. An error with an older one.
  TORCH_ARG(bool, batched_grad_copy) = false;
  /// With LibTorch 2.12 or newer: allocate buckets only once the first gradients arrive. An error with an older one.
  TORCH_ARG(bool, lazy_bucket_allocation) = false;
};

struct JoinOptions {
  /// Divide gradients by the number of all ranks; otherwise by the number of those that still have data.
  TORCH_ARG(bool, divide_by_initial_world_size) = true;
  /// If false, the loop runs without answering for others.
  TORCH_ARG(bool, enable) = true;
  /// Throw on every rank as soon as one is out of data.
  TORCH_ARG(bool, throw_on_early_termination) = false;
};

}  // namespace lockstep::ddp
