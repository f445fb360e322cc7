// Host code writes, and kernels read, how the tensors of a launch lie in memory. Tensors are taken apart into chunks of
// 64 KiB, one for each block of threads.
#pragma once
#include <cstdint>

#include "cuda/bodies/host_device.h"
#include "inspectors/fingerprint/kernels.h"

namespace lockstep::cuda {

namespace kernels = inspect::kernels;

inline constexpr uint32_t kMostDimensions = 8;

/// The strides of a tensor that is not contiguous. Neighbouring dimensions that lie as one are merged. Outermost first.
struct Strides {
  uint32_t dimensions;
  uint32_t element_size;  // bytes
  int64_t sizes[kMostDimensions];
  int64_t strides[kMostDimensions];  // bytes
};

struct TensorRecord {
  const uint8_t* data;
  int64_t bytes;  // of all elements
  uint64_t start_hash[2];
  uint32_t first_chunk, chunks;  // among the chunks of all tensors
  uint32_t first_group, groups;  // likewise
  int32_t strides;  // index of its Strides; -1: contiguous
  kernels::Kind kind;
  uint8_t width;  // of a contiguous tensor: the power of 2 up to 16 that its address is a multiple of
};

/// Reads a tensor in logical (row-major) order.
class Reader {
 public:
  LOCKSTEP_HOST_DEVICE Reader(const TensorRecord& tensor, const Strides* strides)
      : tensor_(tensor), strides_(tensor.strides < 0 ? nullptr : strides + tensor.strides) {}

  /// Whether load_piece() reads what piece() does, except at the end.
  LOCKSTEP_HOST_DEVICE bool in_pieces() const { return !strides_ && tensor_.width == 16; }
  LOCKSTEP_HOST_DEVICE const uint8_t* contiguous_at(int64_t begin) const { return tensor_.data + begin; }

  /// Returns the 16 bytes from `begin` (a multiple of 16) on, with zeros after the tensor's end.
  LOCKSTEP_HOST_DEVICE Piece piece(int64_t begin) const {
    Piece piece = {};
    if (strides_) {
      gather(begin, piece);
    } else if (begin + 16 > tensor_.bytes) {
      for (int64_t i = 0; begin + i < tensor_.bytes; ++i)
        piece.words[i / 4] |= uint32_t{tensor_.data[begin + i]} << (8 * (i % 4));
    } else {
      const uint8_t* data = tensor_.data + begin;
      if (tensor_.width == 16) {
        piece = load_piece(data);
      } else if (tensor_.width >= 4) {
        LOCKSTEP_UNROLL
        for (uint32_t i = 0; i < 4; ++i) piece.words[i] = load<uint32_t>(data + 4 * i);
      } else if (tensor_.width == 2) {
        LOCKSTEP_UNROLL
        for (uint32_t i = 0; i < 8; ++i) piece.words[i / 2] |= uint32_t{load<uint16_t>(data + 2 * i)} << (16 * (i % 2));
      } else {
        LOCKSTEP_UNROLL
        for (uint32_t i = 0; i < 16; ++i) piece.words[i / 4] |= uint32_t{data[i]} << (8 * (i % 4));
      }
    }
    return piece;
  }

  /// Returns the `T` at `begin` (a multiple of its size, before the end): an element or a part of a complex number.
  template <typename T>
  LOCKSTEP_HOST_DEVICE T element(int64_t begin) const {
    return load<T>(strides_ ? address(begin) : tensor_.data + begin);
  }

 private:
  LOCKSTEP_HOST_DEVICE const uint8_t* address(int64_t begin) const {
    int64_t index = begin / strides_->element_size;
    const uint8_t* data = tensor_.data + begin % strides_->element_size;
    for (uint32_t d = strides_->dimensions; d-- > 0; index /= strides_->sizes[d])
      data += index % strides_->sizes[d] * strides_->strides[d];
    return data;
  }
  LOCKSTEP_HOST_DEVICE void gather(int64_t begin, Piece& piece) const {
    const uint32_t size = strides_->element_size;
    for (uint32_t at = 0; at < 16 && begin + at < tensor_.bytes; at += size) {
      const uint8_t* data = address(begin + at);
      switch (size) {
        case 1:
          piece.words[at / 4] |= uint32_t{*data} << (8 * (at % 4));
          break;
        case 2:
          piece.words[at / 4] |= uint32_t{load<uint16_t>(data)} << (8 * (at % 4));
          break;
        default:  // 4, 8, 16
          for (uint32_t i = 0; i < size; i += 4) piece.words[(at + i) / 4] = load<uint32_t>(data + i);
      }
    }
  }

  const TensorRecord& tensor_;
  const Strides* strides_;
};

}  // namespace lockstep::cuda
