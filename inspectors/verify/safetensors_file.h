// Reads files of safetensors: a length, a header in JSON, and the bytes of the tensors. Format:
// https://huggingface.co/docs/safetensors, "Format". Tensors are views of the mapped file.
#pragma once
#include <memory>

#include "inspectors/pickle/reading_limit.h"
#include "inspectors/subject/subject.h"
#include "inspectors/verify/mapped_file.h"

namespace lockstep::inspect {

/// Whether the beginning of `file` is one of safetensors: a length of a header that fits, and its first brace.
bool is_safetensors(const MappedFile& file);

/// Adds the tensors of `file`, in the order of their bytes; the texts of its `__metadata__` become unseen items. The
/// file must not be written while the items are used. Throws std::runtime_error for a header that is damaged, for bytes
/// that belong to no tensor or to two, and for dtypes that LibTorch lacks.
void add_safetensors(Subject& subject, const std::shared_ptr<MappedFile>& file, ReadingLimit& limit);

}  // namespace lockstep::inspect
