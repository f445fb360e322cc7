// The instructions of PTX that nvcc makes of the kernels, and what a thread of a block has: ptx_to_cpp.py writes
// kernels as functions over these.
#pragma once
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace lockstep::cuda::ptx {

struct Thread {
  uint32_t tid, ctaid;
  uint8_t *shared, *local, *param;
  void* registers;
};

struct Kernel {
  int (*run)(Thread& thread, int resume);  // to its next barrier, whose number it returns; -1: to the end
  size_t register_bytes, shared_bytes, local_bytes;
};
extern const Kernel fingerprint_kernel, sentinel_kernel;

struct Half {};

/// Bits of the same width as they are; integers of another width are cut off or extended by the sign of their type.
template <typename To, typename From>
To as(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>)
    return static_cast<To>(value);
  else if constexpr (sizeof(To) == sizeof(From))
    return std::bit_cast<To>(value);
  else  // an immediate operand, which has 64 bits
    return std::bit_cast<To>(static_cast<std::conditional_t<sizeof(To) == 4, uint32_t, uint64_t>>(value));
}
template <typename Register, typename Value>
void put(Register& to, Value value) {
  to = as<Register>(value);
}
inline float float_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline double double_bits(uint64_t bits) { return std::bit_cast<double>(bits); }

inline uint8_t* at(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }
inline uint8_t* at(const Thread& thread, uint64_t address) { return thread.shared + static_cast<uint32_t>(address); }
/// A device ends the kernel otherwise.
inline void aligned(const uint8_t* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes == 0) return;
  std::fprintf(stderr, "misaligned access of %zu bytes at %p\n", bytes, static_cast<const void*>(address));
  std::abort();
}
template <typename T>
T load(const uint8_t* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}
template <typename T>
void store(uint8_t* address, T value) {
  std::memcpy(address, &value, sizeof value);
}

/// float32 arithmetic has one NaN as its result.
template <typename T>
T canonical(T value) {
  if constexpr (std::is_same_v<T, float>)
    if (value != value) return float_bits(0x7fffffffu);
  return value;
}
template <typename T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;

// Integers wrap around; a narrow one becomes an int in C++.
template <typename T>
T add(T a, T b) {
  return canonical(static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b)));
}
template <typename T>
T sub(T a, T b) {
  return canonical(static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b)));
}
/// mul.lo, and mul.wide with a T of twice the operands' width.
template <typename T, typename Operand>
T mul(Operand a, Operand b) {
  return canonical(
      static_cast<T>(static_cast<Wrapping<T>>(static_cast<T>(a)) * static_cast<Wrapping<T>>(static_cast<T>(b))));
}
template <typename T>
T mad(T a, T b, T c) {
  return add<T>(mul<T>(a, b), c);
}
template <typename T>
T div(T a, T b) {
  return canonical(static_cast<T>(a / b));
}
template <typename T>
T rem(T a, T b) {
  return static_cast<T>(a % b);
}
template <typename T>
T min(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
T max(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
T neg(T a) {
  return sub<T>(0, a);
}
template <typename T>
T abs(T a) {
  return std::is_integral_v<T> ? max<T>(a, neg<T>(a)) : std::fabs(a);
}
template <typename T>
T and_(T a, T b) {
  return static_cast<T>(a & b);
}
template <typename T>
T or_(T a, T b) {
  return static_cast<T>(a | b);
}
template <typename T>
T xor_(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <typename T>
T not_(T a) {
  if constexpr (std::is_same_v<T, bool>)
    return !a;
  else
    return static_cast<T>(~a);
}
/// Shifts by the width and more leave nothing, or the sign.
template <typename T>
T shl(T a, uint32_t by) {
  return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<Wrapping<T>>(a) << by);
}
template <typename T>
T shr(T a, uint32_t by) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  if (by < kBits) return static_cast<T>(a >> by);
  return std::is_signed_v<T> ? static_cast<T>(a >> (kBits - 1)) : T{0};
}
template <typename T>
T sqrt(T a) {
  return std::sqrt(a);
}
/// Bytes of b:a, chosen by the four selectors of `selection`; with its highest bit, one chooses the byte's sign.
template <typename T>
T prmt(T a, T b, T selection) {
  const uint64_t both = uint64_t{b} << 32 | a;
  T result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t selector = selection >> 4 * i & 15;
    uint32_t byte = static_cast<uint32_t>(both >> 8 * (selector & 7)) & 255;
    if (selector & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << 8 * i;
  }
  return result;
}
/// The lowest bits of `a`, `length` many, in `b` at `position`.
template <typename T>
T bfi(T a, T b, T position, T length) {
  const T field = (length & 255) >= 8 * sizeof(T) ? static_cast<T>(~T{0}) : shl<T>(1, length & 255) - 1;
  const T mask = shl<T>(field, position & 255);
  return static_cast<T>((b & ~mask) | (shl<T>(a, position & 255) & mask));
}
template <typename To, typename From, typename Value>
To convert(Value value) {
  if constexpr (std::is_same_v<From, Half>) {
    _Float16 half;
    std::memcpy(&half, &value, sizeof half);
    return canonical(static_cast<float>(half));
  } else {
    return static_cast<To>(value);
  }
}

inline void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline uint32_t atomic_add(uint8_t* place, uint32_t value) {
  return __atomic_fetch_add(reinterpret_cast<uint32_t*>(place), value, __ATOMIC_SEQ_CST);
}
inline uint32_t atomic_or(uint8_t* place, uint32_t value) {
  return __atomic_fetch_or(reinterpret_cast<uint32_t*>(place), value, __ATOMIC_SEQ_CST);
}
inline uint32_t atomic_min(uint8_t* place, uint32_t value) {
  auto* const word = reinterpret_cast<uint32_t*>(place);
  uint32_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  while (value < seen && !__atomic_compare_exchange_n(word, &seen, value, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return seen;
}

}  // namespace lockstep::cuda::ptx
