#include "tests/cuda/spin.h"

namespace lockstep::cuda {
namespace {

__global__ void spin(const volatile int* flag) {
  while (*flag == 0) {
  }
}

}  // namespace

cudaError_t spin_until(const volatile int* flag, cudaStream_t stream) {
  spin<<<1, 1, 0, stream>>>(flag);
  return cudaGetLastError();
}

}  // namespace lockstep::cuda
