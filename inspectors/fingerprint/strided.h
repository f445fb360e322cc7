// Reads the elements of a tensor of any strides in logical (row-major) order: a part at a time into a buffer, without a
// copy of the tensor.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::inspect {

struct Dimension {
  int64_t size, stride;  // stride in bytes
};
/// Returns the dimensions of a tensor with elements, outermost first, without those of size 1; contiguous neighbours
/// are merged. At most one for a contiguous tensor.
inline std::vector<Dimension> merged_dimensions(const at::Tensor& tensor) {
  std::vector<Dimension> dimensions;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const Dimension next{tensor.size(d), tensor.stride(d) * tensor.element_size()};
    if (next.size == 1) continue;
    if (!dimensions.empty() && dimensions.back().stride == next.stride * next.size)
      dimensions.back() = {dimensions.back().size * next.size, next.stride};
    else
      dimensions.push_back(next);
  }
  return dimensions;
}

class StridedReader {
 public:
  /// Reads a strided tensor on the CPU. Keeps no reference: `tensor` must outlive it.
  explicit StridedReader(const at::Tensor& tensor);

  int64_t bytes() const { return bytes_; }
  int64_t element_size() const { return element_size_; }
  bool contiguous() const { return contiguous_; }

  /// Returns the bytes from `begin` to `begin + count` (both multiples of the element's size): a pointer into a
  /// contiguous tensor, otherwise to a copy in `buffer`, which has at least `count` bytes.
  const uint8_t* read(int64_t begin, int64_t count, uint8_t* buffer) const;

 private:
  const uint8_t* data_ = nullptr;
  int64_t element_size_ = 1;
  int64_t bytes_ = 0;
  bool contiguous_ = true;
  std::vector<Dimension> dimensions_;
};

}  // namespace lockstep::inspect
