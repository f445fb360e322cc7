// Defines what goes into a fingerprint beside the bytes, and how a dtype is read. The CPU's loops and the kernels of
// devices share it.
#pragma once
#include <ATen/core/Tensor.h>

#include <cmath>

#include "inspectors/fingerprint/fingerprint.h"
#include "inspectors/fingerprint/kernels.h"

namespace lockstep::inspect {

/// Quantized and packed dtypes have no statistics, and neither has float8_e8m0fnu.
inline kernels::Kind kind_of(at::ScalarType dtype) {
  using kernels::Kind;
  switch (dtype) {
    case at::kFloat:
    case at::kComplexFloat:
      return Kind::float32;
    case at::kDouble:
    case at::kComplexDouble:
      return Kind::float64;
    case at::kBFloat16:
      return Kind::bfloat16;
    case at::kHalf:
    case at::kComplexHalf:
      return Kind::float16;
    case at::kBool:
    case at::kByte:
      return Kind::uint8;
    case at::kChar:
      return Kind::int8;
    case at::kShort:
      return Kind::int16;
    case at::kInt:
      return Kind::int32;
    case at::kLong:
      return Kind::int64;
    case at::kUInt16:
      return Kind::uint16;
    case at::kUInt32:
      return Kind::uint32;
    case at::kUInt64:
      return Kind::uint64;
    case at::kFloat8_e5m2:
      return Kind::float8_e5m2;
    case at::kFloat8_e4m3fn:
      return Kind::float8_e4m3fn;
    case at::kFloat8_e5m2fnuz:
      return Kind::float8_e5m2fnuz;
    case at::kFloat8_e4m3fnuz:
      return Kind::float8_e4m3fnuz;
    default:
      return Kind::bytes;
  }
}

/// Returns the hash of dtype and shape, to which the groups of chunks are added: an empty tensor's whole hash.
inline Hash start_hash(const at::Tensor& tensor) {
  Hash hash = {kernels::mix(static_cast<uint64_t>(tensor.scalar_type()) + 1), static_cast<uint64_t>(tensor.dim())};
  for (const int64_t size : tensor.sizes())
    hash = {kernels::combine_first(hash[0], static_cast<uint64_t>(size)),
            kernels::combine_second(hash[1], ~static_cast<uint64_t>(size))};
  return hash;
}

inline Fingerprint fingerprint_of(const kernels::Result& result) {
  return {.hash = {result.hash[0], result.hash[1]},
          .nan_count = result.nan_count,
          .inf_count = result.inf_count,
          .norm = std::sqrt(result.squares),
          .abs_max = result.abs_max};
}

/// Throws c10::Error, which names `index`, for a tensor that fingerprint() does not take.
inline void check_fingerprintable(const at::Tensor& tensor, size_t index) {
  TORCH_CHECK(tensor.defined(), "fingerprint: tensor ", index, " is undefined");
  TORCH_CHECK(tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_meta(), "fingerprint: tensor ",
              index, " has no strided storage (", tensor.layout(), " on ", tensor.device(), "): pass its values()");
}

}  // namespace lockstep::inspect
