// Handles the device of a rank, for the worker and liblockstep: chooses the GPU, says what it is and how full, and has
// the process groups on NCCL.
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <torch/headeronly/version.h>

#include <array>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#ifdef LOCKSTEP_CUDA_HAS_NCCL
#include "cuda/nccl_connector.h"
#include "cuda/nccl_symbols.h"
#endif
#include "cuda/current_device.h"
#include "cuda/kernels.h"
#include "protocol/device_plugin.h"

namespace lockstep::cuda {
namespace {

constexpr int kMostDevices = 64;

/// Keeps the text until the thread keeps another.
const char* kept(std::string text) {
  static thread_local std::string storage;
  storage = std::move(text);
  return storage.c_str();
}

/// LibTorch registers its CUDA half when this library is loaded.
const char* load_libtorch_cuda() {
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL)) return nullptr;
  const char* text = ::dlerror();
  return kept(std::string("this LibTorch has no support for CUDA (") + (text ? text : "libtorch_cuda.so") +
              "): run tools/setup --gpu");
}

const char* problem_of(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return nullptr;
  // Otherwise the next call that asks for the last error is given this one.
  static_cast<void>(cudaGetLastError());
  return kept(std::string(call) + ": " + cudaGetErrorString(error));
}

const char* select(int index) {
  if (const char* problem = load_libtorch_cuda()) return problem;
  int count = 0;
  if (const char* problem = problem_of(cudaGetDeviceCount(&count), "cudaGetDeviceCount")) return problem;
  if (index < 0 || index >= count)
    return kept("there is no GPU " + std::to_string(index) + "; " + std::to_string(count) + " are visible");
  if (const char* problem = problem_of(cudaSetDevice(index), "cudaSetDevice")) return problem;
  // The runtime loads a kernel at its first launch, which can wait for kernels that run: for one of NCCL without end.
  return problem_of(load_kernels(), "cudaFuncGetAttributes");
}

const char* name(int index) {
  static std::mutex mutex;
  static std::array<std::string, kMostDevices> names;
  if (index < 0 || index >= kMostDevices) return nullptr;
  const std::lock_guard lock(mutex);
  std::string& known = names[static_cast<size_t>(index)];
  if (known.empty()) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    known = properties.name;
  }
  return known.c_str();
}

#ifdef LOCKSTEP_CUDA_HAS_NCCL
/// Returns a symbol that libtorch_cuda.so lacks. Symbols are bound when they are called, so it is found here.
const char* missing_symbol() {
  for (const char* symbol : kNcclSymbols)
    if (!::dlsym(RTLD_DEFAULT, symbol)) return symbol;
  return nullptr;
}

/// Returns why there are no process groups on NCCL; empty where there are.
std::string problem_of_nccl() {
  if (const char* problem = load_libtorch_cuda()) return problem;
  if (const char* symbol = missing_symbol())
    return std::string("libtorch_cuda.so lacks ") + symbol + ": it is of another version than LibTorch " +
           TORCH_VERSION;
  int count = 0;
  if (const char* problem = problem_of(cudaGetDeviceCount(&count), "cudaGetDeviceCount")) return problem;
  return count == 0 ? "no GPU is visible" : "";
}

const void* nccl(const char** problem) {
  static const dist::BackendFactory factory = make_nccl_connector;
  static const std::string found = problem_of_nccl();
  *problem = found.empty() ? nullptr : found.c_str();
  return found.empty() ? &factory : nullptr;
}
#else
const void* nccl(const char** problem) {
  *problem = "it was built without NCCL, because nccl.h was not found: run tools/setup --gpu and build again";
  return nullptr;
}
#endif

bool captures(int index) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  try {
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(index)).stream();
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) static_cast<void>(cudaGetLastError());
  } catch (const std::exception&) {  // no such device, or it has failed: the operation itself reports that
    static_cast<void>(cudaGetLastError());
  }
  return status != cudaStreamCaptureStatusNone;
}

void query(void (*question)(void*), void* argument) {
  // In the global mode, which is the default, a capture of any thread forbids cudaEventQuery to all.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  const bool exchanged = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
  question(argument);
  if (exchanged) static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
}

}  // namespace
}  // namespace lockstep::cuda

extern "C" {
__attribute__((visibility("default"))) extern const lockstep_device_plugin_v3 lockstep_device_plugin;
const lockstep_device_plugin_v3 lockstep_device_plugin{.abi = lockstep::kDevicePluginAbi,
                                                       .libtorch = TORCH_VERSION,
                                                       .select = lockstep::cuda::select,
                                                       .memory = lockstep::cuda::memory,
                                                       .name = lockstep::cuda::name,
                                                       .nccl = lockstep::cuda::nccl,
                                                       .captures = lockstep::cuda::captures,
                                                       .query = lockstep::cuda::query};
}
