// Converts the state of optimizers and wrappers to bytes, which go to another rank or into a file, and back.
#pragma once
#include <torch/torch.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ddp/distributed_module.h"

namespace lockstep::ddp::detail {

/// Converts bytes to a tensor of uint8 [N], and back. bytes_of() throws std::runtime_error for another dtype.
torch::Tensor tensor_of(const std::string& bytes);
std::string bytes_of(const torch::Tensor& tensor);

/// Returns parameters, then buffers, with their names.
std::vector<std::pair<std::string, torch::Tensor>> tensors_of(torch::nn::Module& module);

/// The state and the options of an optimizer.
struct SavedOptimizer {
  std::string bytes;
  uint64_t digest = 0;  // equal on ranks that have the same
  std::string problem;  // why it can't be saved
};
SavedOptimizer save(const torch::optim::Optimizer& optimizer);
/// Whether anything was saved: a class of the user's may have no save().
bool has_contents(const std::string& archive);
/// Returns the bytes of save() alone, in a third of the time. Throws what LibTorch, or a class of the user's, throws.
std::string bytes_of(const torch::optim::Optimizer& optimizer);

/// Loads the state. Returns what is wrong with the bytes, if anything; the optimizer has no state then.
std::string load(torch::optim::Optimizer& optimizer, const std::string& bytes);

/// Returns the device of the optimizer's tensors.
torch::Device device_of(const torch::optim::Optimizer& optimizer);

/// Returns the layout of the buckets, on which the order of sums depends, and the number of steps.
nlohmann::json layout_of(const DistributedModule& wrapper);
/// Takes over the result of layout_of(). Local. Throws nlohmann::json::exception for what layout_of() does not write.
void take_over(const DistributedModule& wrapper, const nlohmann::json& layout);

/// Takes over the number of steps alone. Returns false where the wrapper has other buckets.
bool take_over_steps(const DistributedModule& wrapper, const nlohmann::json& layout);

/// Returns the text of an exception, without LibTorch's stack.
std::string message_of(const std::exception& error);

}  // namespace lockstep::ddp::detail
