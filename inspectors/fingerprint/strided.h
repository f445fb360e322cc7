// Reads the elements of a tensor of any strides in logical (row-major) order: a part at a time into a buffer, without a
// copy of the tensor.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::inspect {

class StridedReader {
 public:
  /// A strided tensor on the CPU. Keeps no reference: `tensor` must outlive it.
  explicit StridedReader(const at::Tensor& tensor);

  int64_t bytes() const { return bytes_; }
  int64_t element_size() const { return element_size_; }

  /// The bytes from `begin` to `begin + count` (both multiples of the element's size): a pointer into a contiguous
  /// tensor, otherwise to a copy in `buffer`, which has at least `count` bytes.
  const uint8_t* read(int64_t begin, int64_t count, uint8_t* buffer) const;

 private:
  struct Dimension {
    int64_t size, stride;  // stride in bytes
  };
  const uint8_t* data_ = nullptr;
  int64_t element_size_ = 1;
  int64_t bytes_ = 0;
  bool contiguous_ = true;
  std::vector<Dimension> dimensions_;  // without those of size 1; contiguous neighbours are merged
};

}  // namespace lockstep::inspect
