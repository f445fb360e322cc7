// What stands for the tensors that a rank sends, in the recording of a rank: dist::SentText.
#pragma once
#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace lockstep::inspect {

/// Returns {"hash": that of all tensors in their order, "words": "norm 1.25, 1 NaN (hash 0123456789abcdef)"}.
nlohmann::json sent_text(const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::inspect
