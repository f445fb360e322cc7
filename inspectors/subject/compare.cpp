#include "inspectors/subject/compare.h"

#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace lockstep::inspect {
namespace {

/// Maps the bits of a float to an unsigned integer such that neighbouring values are neighbouring integers.
template <typename Bits>
Bits ordered(Bits bits) {
  constexpr Bits sign = Bits{1} << (sizeof(Bits) * 8 - 1);
  return bits & sign ? static_cast<Bits>(~bits + 1) : static_cast<Bits>(bits | sign);
}

template <typename Bits>
double distance(Bits a, Bits b) {
  const Bits x = ordered(a), y = ordered(b);
  return static_cast<double>(x > y ? x - y : y - x);
}

template <typename T>
T loaded(const uint8_t* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

/// Takes a floating-point type by its bits.
template <typename Bits, typename Float>
struct Floating {
  static double value(Bits bits) {
    Float value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof bits);
    return static_cast<double>(value);
  }
};

template <typename Bits, typename Float, int parts = 1>
void compare_floats(const uint8_t* mine, const uint8_t* other, int64_t bytes, int64_t first, const Tolerance& tolerance,
                    Difference& found) {
  constexpr int64_t size = sizeof(Bits);
  int64_t last_counted = -1;
  for (int64_t i = 0; i < bytes / size; ++i) {
    const Bits a = loaded<Bits>(mine + i * size), b = loaded<Bits>(other + i * size);
    if (a == b) continue;
    const int64_t element = first + i / parts;
    if (found.first_bits < 0) found.first_bits = element;
    const double x = Floating<Bits, Float>::value(a), y = Floating<Bits, Float>::value(b);
    if (std::isnan(x) && std::isnan(y)) {
      ++found.nan_payloads;
      continue;
    }
    if (x == y) {
      ++found.zero_signs;
      continue;
    }
    const bool finite = std::isfinite(x) && std::isfinite(y);
    if (finite && std::abs(x - y) <= tolerance.atol + tolerance.rtol * std::abs(y) && !tolerance.exact()) continue;
    if (element != last_counted) ++found.count;
    last_counted = element;
    if (found.first < 0) found.first = element;
    if (!finite) continue;
    found.max_abs = std::max(found.max_abs, std::abs(x - y));
    found.max_ulp = std::max(found.max_ulp, distance(a, b));
    found.squares += (x - y) * (x - y);
  }
}

template <typename Integer>
void compare_integers(const uint8_t* mine, const uint8_t* other, int64_t bytes, int64_t first, const Tolerance&,
                      Difference& found) {
  constexpr int64_t size = sizeof(Integer);
  for (int64_t i = 0; i < bytes / size; ++i) {
    const Integer a = loaded<Integer>(mine + i * size), b = loaded<Integer>(other + i * size);
    if (a == b) continue;
    if (found.first_bits < 0) found.first_bits = first + i;
    if (found.first < 0) found.first = first + i;
    ++found.count;
    const double distance = static_cast<double>(std::max(a, b)) - static_cast<double>(std::min(a, b));
    found.max_abs = std::max(found.max_abs, distance);
    found.squares += distance * distance;
  }
}

}  // namespace

void compare_elements(c10::ScalarType dtype, const uint8_t* mine, const uint8_t* other, int64_t bytes,
                      int64_t first_element, const Tolerance& tolerance, Difference& found) {
  if (std::memcmp(mine, other, static_cast<size_t>(bytes)) == 0) return;
  const auto with = [&](auto function) { function(mine, other, bytes, first_element, tolerance, found); };
  switch (dtype) {
    case at::kFloat:
      return with(compare_floats<uint32_t, float>);
    case at::kDouble:
      return with(compare_floats<uint64_t, double>);
    case at::kHalf:
      return with(compare_floats<uint16_t, c10::Half>);
    case at::kBFloat16:
      return with(compare_floats<uint16_t, c10::BFloat16>);
    case at::kComplexFloat:
      return with(compare_floats<uint32_t, float, 2>);
    case at::kComplexDouble:
      return with(compare_floats<uint64_t, double, 2>);
    case at::kComplexHalf:
      return with(compare_floats<uint16_t, c10::Half, 2>);
    case at::kFloat8_e5m2:
      return with(compare_floats<uint8_t, c10::Float8_e5m2>);
    case at::kFloat8_e4m3fn:
      return with(compare_floats<uint8_t, c10::Float8_e4m3fn>);
    case at::kFloat8_e5m2fnuz:
      return with(compare_floats<uint8_t, c10::Float8_e5m2fnuz>);
    case at::kFloat8_e4m3fnuz:
      return with(compare_floats<uint8_t, c10::Float8_e4m3fnuz>);
    case at::kChar:
      return with(compare_integers<int8_t>);
    case at::kShort:
      return with(compare_integers<int16_t>);
    case at::kInt:
      return with(compare_integers<int32_t>);
    case at::kLong:
      return with(compare_integers<int64_t>);
    case at::kUInt16:
      return with(compare_integers<uint16_t>);
    case at::kUInt32:
      return with(compare_integers<uint32_t>);
    case at::kUInt64:
      return with(compare_integers<uint64_t>);
    default:
      return with(compare_integers<uint8_t>);  // bool, bytes, and packed types by their bytes
  }
}

}  // namespace lockstep::inspect
