#include "inspectors/fingerprint/strided.h"

#include <algorithm>
#include <cstring>

namespace lockstep::inspect {
namespace {

template <size_t size>
void copy_elements(const uint8_t* from, int64_t stride, int64_t count, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i, from += stride, to += size) std::memcpy(to, from, size);
}

void copy_run(const uint8_t* from, int64_t stride, int64_t count, int64_t element_size, uint8_t* to) {
  if (stride == element_size) {
    std::memcpy(to, from, static_cast<size_t>(count * element_size));
    return;
  }
  switch (element_size) {
    case 1:
      return copy_elements<1>(from, stride, count, to);
    case 2:
      return copy_elements<2>(from, stride, count, to);
    case 4:
      return copy_elements<4>(from, stride, count, to);
    case 8:
      return copy_elements<8>(from, stride, count, to);
    default:
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * element_size, from + i * stride, static_cast<size_t>(element_size));
  }
}

}  // namespace

StridedReader::StridedReader(const at::Tensor& tensor)
    : element_size_(tensor.element_size()),
      bytes_(tensor.numel() * tensor.element_size()),
      contiguous_(tensor.is_contiguous()) {
  if (bytes_ == 0) return;
  data_ = static_cast<const uint8_t*>(tensor.const_data_ptr());
  if (!contiguous_) dimensions_ = merged_dimensions(tensor);
}

const uint8_t* StridedReader::read(int64_t begin, int64_t count, uint8_t* buffer) const {
  if (contiguous_) return data_ + begin;
  std::vector<int64_t> index(dimensions_.size());
  int64_t element = begin / element_size_, left = count / element_size_;
  for (size_t d = dimensions_.size(); d-- > 0; element /= dimensions_[d].size) index[d] = element % dimensions_[d].size;
  uint8_t* to = buffer;
  const Dimension& inner = dimensions_.back();
  while (left > 0) {
    const uint8_t* from = data_;
    for (size_t d = 0; d < dimensions_.size(); ++d) from += index[d] * dimensions_[d].stride;
    const int64_t run = std::min(left, inner.size - index.back());
    copy_run(from, inner.stride, run, element_size_, to);
    to += run * element_size_;
    left -= run;
    index.back() += run;
    for (size_t d = dimensions_.size() - 1; d > 0 && index[d] == dimensions_[d].size; --d) {
      index[d] = 0;
      ++index[d - 1];
    }
  }
  return buffer;
}

}  // namespace lockstep::inspect
