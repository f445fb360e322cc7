// Reads the learning rate of an optimizer, which may be of a class that LibTorch does not have.
#pragma once
#include <torch/torch.h>

#include <optional>

namespace lockstep::inspect {

/// Returns nothing where the class of the options defines none: LibTorch's get_lr() throws then.
inline std::optional<double> learning_rate(const torch::optim::OptimizerOptions& options) {
  try {
    return options.get_lr();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace lockstep::inspect
