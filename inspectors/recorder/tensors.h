// Tensors as recordings have them (inspectors/compare/recording.h).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "inspectors/compare/recording.h"
#include "inspectors/compare/replacements.h"

namespace lockstep::inspect::compare {

/// A piece, and the memory that its values are in.
struct RecordedTensor {
  Piece piece;
  at::Tensor readable;  // on the host, without gaps, with one of the dtypes of recordings
  std::string_view values() const { return {static_cast<const char*>(readable.const_data_ptr()), readable.nbytes()}; }
};

/// Sketches a tensor, which is the part at `offset` of a whole of `shape`. Sets the dtype, the box and the summary of
/// `piece`. Dtypes that recordings don't have are converted to float32. Copies tensors of other devices to the host.
/// Local. Throws c10::Error for complex numbers, and for a shape with another number of dimensions.
RecordedTensor recorded(Piece piece, const at::Tensor& tensor, at::IntArrayRef shape, at::IntArrayRef offset);

/// Replaces the values of `tensor`, which was recorded as `recorded`, where there is a replacement. Autograd does not see it:
/// what backward keeps of the tensor is replaced, too. Local. Returns false where the tensor can't be written: it is
/// sparse, or its elements share memory. Throws Error for a file that can't be read.
bool replace_values(const at::Tensor& tensor, const Replacements& replacements, const std::string& name,
                    const Piece& recorded);

/// Returns the hash of each sample of a batch: of the rows of all inputs that have as many rows as the first.
std::vector<uint64_t> sample_hashes(const std::vector<at::Tensor>& inputs);

}  // namespace lockstep::inspect::compare
