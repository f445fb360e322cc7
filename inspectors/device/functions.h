// Finds the functions of a plug-in for tensors on its device. liblockstep_cuda.so, beside this library, is loaded at
// the first CUDA tensor; nothing here needs CUDA.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/headeronly/version.h>

#include <cstdint>
#include <string>

namespace lockstep::inspect {

inline constexpr uint32_t kDeviceFunctionsAbi = 1;

/// Each takes tensors of one device, queues its work on the current stream, and returns without waiting for it. Local:
/// no collective. Throws c10::Error for tensors without strided storage, when the stream is being captured into a graph,
/// and for errors of the device, also of earlier work on it.
struct DeviceFunctions {
  uint32_t abi = kDeviceFunctionsAbi;
  const char* libtorch = TORCH_VERSION;  // that the plug-in was built for
  /// Returns int64 [number of tensors, 6] on the device: the fields of Fingerprint in order, the last two as bits.
  at::Tensor (*fingerprint)(at::TensorList tensors) = nullptr;
  /// Returns int32 [1] on the device: the index of the first tensor with NaN or Inf, or 2^31 - 1. Integers have none.
  at::Tensor (*first_bad)(at::TensorList tensors) = nullptr;
};

/// Returns the functions for a device type; null for the CPU, and where the plug-in is absent or can't be loaded. The
/// latter warns once. From any thread.
const DeviceFunctions* device_functions(c10::DeviceType device);

/// Registers `functions`, which must outlive all calls; null removes them. Throws c10::Error when they are those of
/// another version.
void set_device_functions(c10::DeviceType device, const DeviceFunctions* functions);

/// Returns why this library can't call the functions of `functions`; empty when it can.
std::string version_problem(const DeviceFunctions& functions);

}  // namespace lockstep::inspect
