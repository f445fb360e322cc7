// Makes of what Python looks at what liblockstep takes: subjects, parameters with gradients, names, state, samples.
#pragma once
#include "inspectors/data/data.h"
#include "inspectors/memory/memory.h"
#include "inspectors/subject/gradients.h"
#include "inspectors/subject/saved_state.h"
#include "inspectors/subject/subject.h"
#include "inspectors/trace/tensor_names.h"
#include "inspectors/verify/verify.h"
#include "python/operators/call.h"

namespace lockstep::python {

/// {"name", "type", "items": [{"name", "kind", "tensor": index or "value": JSON}], "modes": [[module, training]] or
/// null, "rng", "buffers_are_local", "buffers_are_written", "dropout", "stepped": [index], "parts": [{"name", "kind",
/// "tensor", "place", "mesh": [ranks], "trainable"}], "elsewhere": number of tensors, "inputs": null or what the
/// operator "hash" has returned, "doubt": null or {"is_fault", "kind", "text"}}
inspect::ShardedSubject subject_of(const Call& call, const nlohmann::json& subject);

/// {"name", "type", "parameters": [{"name", "tensor"}], "wrapper": null or {"skips_unused", "last_forward_was_local"}}
inspect::GradientSubject gradients_of(const Call& call, const nlohmann::json& subject);

/// [{"object", "name", "kind", "tensor"}]
inspect::TensorNames names_of(const Call& call, const nlohmann::json& names);

/// {"samples": index, "batches": index or null, "epoch", "worker_seed", "of_epoch": a function of Python or null}
inspect::SampleOrder samples_of(const Call& call, const nlohmann::json& order);

/// [{"name", "tensors": [{"kind", "name", "tensor"}]}]
std::vector<inspect::NamedMemory> memory_of(const Call& call, const nlohmann::json& named);

/// Saves the tensors, and all generators.
void save_all(inspect::SavedState& saved, const Call& call, const nlohmann::json& tensors);

/// Takes what a function of Python that was called back gives, beyond its number: tensors, and JSON.
void give(Call given);
/// Returns what was given since the last call, on this thread; empty if nothing was.
Call take_given();

}  // namespace lockstep::python
