#include "worker/libtorch.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/headeronly/version.h>

#include "collectives/dist.h"
#include "worker/process/parallel.h"

namespace lockstep::worker {

std::string libtorch_version() {
  const uint64_t packed = aoti_torch_abi_version();  // layout: torch/headeronly/version.h
  return std::to_string(packed >> 56) + "." + std::to_string((packed >> 48) & 0xff) + "." +
         std::to_string((packed >> 40) & 0xff);
}

std::string libtorch_built_with() {
  return std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) + "." +
         std::to_string(TORCH_VERSION_PATCH);
}

void set_libtorch_threads(int threads) { at::set_num_threads(threads); }
int libtorch_threads() { return at::get_num_threads(); }

void warm_up_libtorch() {
  // A copy of this process would wait for the threads of OpenMP and MKL, which it does not have.
  at::set_num_threads(1);
  at::ones({8, 8}).matmul(at::ones({8, 8})).sum().item();
}

void barrier() { dist::barrier(); }

// LibTorch runs its loops with OpenMP and asks omp_in_parallel(), so this covers OpenMP regions of cells, too.
bool in_parallel_region() { return at::in_parallel_region(); }

}  // namespace lockstep::worker
