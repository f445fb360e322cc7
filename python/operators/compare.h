// Operators that write the recording of this process for `lockstep compare` (inspectors/compare/recording.h).
#pragma once
#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "python/operators/call.h"

namespace lockstep::python {

/// Opens the recording of this process. One at a time. "replacements": the folder of those of all ranks, or empty.
nlohmann::json compare_open(const Call& call);
/// Returns {"name": its number}.
nlohmann::json compare_name(const Call& call);
nlohmann::json compare_note(const Call& call);
nlohmann::json compare_end_step(const Call& call);
nlohmann::json compare_close(const Call& call);

/// Records a tensor, which is read once, on the calling thread. `where`: kind, name, step, micro-batch, call, flags, lead
/// (Piece); `shape` and `offset`: of the whole tensor, and of this part in it. Throws if no recording is open.
void compare_piece(const at::Tensor& tensor, at::IntArrayRef where, at::IntArrayRef shape, at::IntArrayRef offset);

/// Replaces the values of a tensor that is recorded as `where` (compare_piece), if there is a replacement. `stays`: its values
/// stay as they are, which is noted.
void compare_replace(const at::Tensor& tensor, at::IntArrayRef where, bool stays);

/// Records the samples of a batch by their content: rows of the first tensor that has dimensions, and of those that have as
/// many. Returns how many there are.
int64_t compare_samples(const std::vector<at::Tensor>& inputs, int64_t step, int64_t micro_batch);

}  // namespace lockstep::python
