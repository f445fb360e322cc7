// Finds NaN and Inf among the elements of 16 bytes, without a branch for each.
#pragma once
#include "cuda/bodies/host_device.h"
#include "cuda/bodies/records.h"

namespace lockstep::cuda {

/// Whether one of the elements in a word is NaN or Inf. One is added to the lowest of each element's exponent bits:
/// only where all are set does it reach the sign's bit.
LOCKSTEP_HOST_DEVICE bool is_bad(kernels::Kind kind, const Piece& piece) {
  using kernels::Kind;
  uint32_t mask = 0, lowest = 0, reached = 0;
  switch (kind) {
    case Kind::float32:
      mask = 0x7f800000U, lowest = 0x00800000U, reached = 0x80000000U;
      break;
    case Kind::bfloat16:
      mask = 0x7f807f80U, lowest = 0x00800080U, reached = 0x80008000U;
      break;
    case Kind::float16:
      mask = 0x7c007c00U, lowest = 0x04000400U, reached = 0x80008000U;
      break;
    case Kind::float8_e5m2:
      mask = 0x7c7c7c7cU, lowest = 0x04040404U, reached = 0x80808080U;
      break;
    case Kind::float8_e4m3fn:  // it has no Inf, and NaN where all bits are set
      mask = 0x7f7f7f7fU, lowest = 0x01010101U, reached = 0x80808080U;
      break;
    case Kind::float64:
      return ((piece.words[1] & 0x7ff00000U) == 0x7ff00000U) | ((piece.words[3] & 0x7ff00000U) == 0x7ff00000U);
    case Kind::float8_e5m2fnuz:
    case Kind::float8_e4m3fnuz: {  // NaN is the negative zero
      uint32_t found = 0;
      LOCKSTEP_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t word = piece.words[i] ^ 0x80808080U;
        found |= (word - 0x01010101U) & ~word & 0x80808080U;  // not 0 where a byte is 0
      }
      return found != 0;
    }
    default:
      return false;
  }
  uint32_t found = 0;
  LOCKSTEP_UNROLL
  for (uint32_t i = 0; i < 4; ++i) found |= (piece.words[i] & mask) + lowest;
  return (found & reached) != 0;
}

}  // namespace lockstep::cuda
