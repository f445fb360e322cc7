// Bodies of kernels are plain C++ that nvcc compiles for devices and any compiler for the CPU, where tests run whole
// grids of them. A kernel is a sequence of phases, functions of (launch, block, thread, shared memory). Between two
// phases all threads of a block meet (__syncthreads). A thread keeps nothing from one phase to the next but what lies
// in shared or global memory.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define LOCKSTEP_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LOCKSTEP_HOST_DEVICE inline
#endif
#if defined(__CUDA_ARCH__)
#define LOCKSTEP_UNROLL _Pragma("unroll")
#define LOCKSTEP_UNROLL_BY_8 _Pragma("unroll 8")
#else
#define LOCKSTEP_UNROLL
#define LOCKSTEP_UNROLL_BY_8
#endif

namespace lockstep::cuda {

/// Convert bits to float32 and float64, and back.
LOCKSTEP_HOST_DEVICE float float_of(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
LOCKSTEP_HOST_DEVICE uint32_t bits_of(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}
LOCKSTEP_HOST_DEVICE double double_of(uint64_t bits) {
  double value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
LOCKSTEP_HOST_DEVICE uint64_t bits_of(double value) {
  uint64_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// A thread loads 16 bytes at a time.
struct alignas(16) Piece {
  uint32_t words[4];
};

/// `data` is aligned to 16 bytes, and nobody writes there while the kernel runs.
LOCKSTEP_HOST_DEVICE Piece load_piece(const uint8_t* data) {
#if defined(__CUDA_ARCH__)
  const uint4 value = __ldg(reinterpret_cast<const uint4*>(data));
  return {{value.x, value.y, value.z, value.w}};
#else
  Piece piece;
  __builtin_memcpy(&piece, data, sizeof piece);
  return piece;
#endif
}

/// Loads a value of a type that memory at `data` is aligned for.
template <typename T>
LOCKSTEP_HOST_DEVICE T load(const uint8_t* data) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const T*>(data);
#else
  T value;
  __builtin_memcpy(&value, data, sizeof value);
  return value;
#endif
}

/// Returns an IEEE half as a float, exactly; NaN and Inf stay what they are. Devices have an instruction for it.
LOCKSTEP_HOST_DEVICE float float_of_half(uint32_t half) {
#if defined(__CUDA_ARCH__)
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(half)));
  return value;
#else
  const uint32_t magnitude = half & 0x7fffU, sign = (half & 0x8000U) << 16;
  if (magnitude >= 0x7c00U) return float_of(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  return float_of(sign | bits_of(float_of(magnitude << 13) * 0x1p112F));
#endif
}

// Counters are shared by blocks. On the CPU, blocks may be threads.
/// Returns what was there. Acquires and releases: what all threads of this block have written before the barrier before
/// it is seen after the barrier behind it by the blocks that add later.
LOCKSTEP_HOST_DEVICE uint32_t atomic_add(uint32_t* counter, uint32_t value) {
#if defined(__CUDA_ARCH__)
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(value) : "memory");
  return before;
#else
  return __atomic_fetch_add(counter, value, __ATOMIC_ACQ_REL);
#endif
}
LOCKSTEP_HOST_DEVICE void atomic_or(uint32_t* place, uint32_t value) {
#if defined(__CUDA_ARCH__)
  atomicOr(place, value);
#else
  __atomic_fetch_or(place, value, __ATOMIC_RELAXED);
#endif
}
LOCKSTEP_HOST_DEVICE void atomic_min(uint32_t* place, uint32_t value) {
#if defined(__CUDA_ARCH__)
  atomicMin(place, value);
#else
  uint32_t current = __atomic_load_n(place, __ATOMIC_RELAXED);
  while (value < current &&
         !__atomic_compare_exchange_n(place, &current, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

}  // namespace lockstep::cuda
