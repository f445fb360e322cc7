// The phase "judge" of the fingerprint kernel reads stripes with NaN, Inf, huge or tiny values again in float64.
#pragma once
#include "cuda/bodies/fingerprint_launch.h"

namespace lockstep::cuda {

/// Reads a stripe's elements of four lanes of 16, one after the other, in float64.
template <typename Element, typename ToDouble>
LOCKSTEP_HOST_DEVICE void read_carefully(FingerprintContext& context, const ToDouble& to_double) {
  const Reader reader(context.tensor(), context.launch.strides);
  const int64_t begin = context.chunk_begin();
  const uint32_t bytes = context.chunk_bytes(), stripe = context.stripe() * kernels::kStripeBytes;
  uint64_t largest = 0;
  uint32_t counts = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t lane = context.quad() * 4 + i;
    double squares = 0;
    for (uint32_t element = lane; element < kernels::kStripeBytes / sizeof(Element); element += kernels::kSquareLanes) {
      const uint32_t offset = stripe + element * static_cast<uint32_t>(sizeof(Element));
      if (offset >= bytes) break;
      const double value = to_double(reader.element<Element>(begin + offset));
      const uint64_t magnitude = bits_of(value) & 0x7fffffffffffffffULL;
      if (magnitude < 0x7ff0000000000000ULL) {
        squares += value * value;
        largest = magnitude > largest ? magnitude : largest;
      } else {
        counts += magnitude == 0x7ff0000000000000ULL ? 0x10000U : 1U;
      }
    }
    context.shared.squares[context.stripe()][lane] = squares;
  }
  context.shared.largest[context.thread] = largest;
  context.shared.counts[context.thread] = counts;
}

LOCKSTEP_HOST_DEVICE void fingerprint_judge(FingerprintContext& context) {
  using kernels::Kind;
  const Kind kind = context.tensor().kind;
  FingerprintShared& shared = context.shared;
  const uint32_t stripe = context.stripe(), quad = context.quad();
  shared.largest[context.thread] = shared.greatest[context.thread];
  if (stripe * kernels::kStripeBytes >= context.chunk_bytes()) return;
  const bool small_float = kind == Kind::float32 || kind == Kind::bfloat16 || kind == Kind::float16;
  bool usual = true;
  if (small_float || kind == Kind::float64) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < kQuads; ++i) {
      const uint64_t each = shared.greatest[stripe * kQuads + i];
      most = each > most ? each : most;
    }
    if (small_float) {
      const uint64_t smallest = bits_of(static_cast<double>(float_of(kernels::kSmallest)));
      const uint64_t beyond = bits_of(static_cast<double>(float_of(kernels::kBeyond)));
      usual = most < beyond && (most >= smallest || most == 0);
    } else {
      usual = most < 0x7ff0000000000000ULL;
    }
  }
  if (quad == 0) shared.careful[stripe] = usual ? 0 : 1;
  if (usual) {
    if (small_float || kind >= Kind::float8_e5m2) {
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t lane = quad * 4 + i;
        float sum = shared.float_squares[stripe][lane];
        if (kind == Kind::float16) sum += shared.float_squares[stripe][kernels::kSquareLanes + lane];
        shared.squares[stripe][lane] = static_cast<double>(sum);
      }
    }
    return;
  }
  switch (kind) {
    case Kind::float32:
      return read_carefully<uint32_t>(context, [](uint32_t bits) { return static_cast<double>(float_of(bits)); });
    case Kind::bfloat16:
      return read_carefully<uint16_t>(
          context, [](uint16_t bits) { return static_cast<double>(float_of(uint32_t{bits} << 16)); });
    case Kind::float16:
      return read_carefully<uint16_t>(context, [](uint16_t bits) { return static_cast<double>(float_of_half(bits)); });
    default:
      return read_carefully<uint64_t>(context, [](uint64_t bits) { return double_of(bits); });
  }
}

}  // namespace lockstep::cuda
