// The functions of the plug-in queue kernels on LibTorch's current stream, in memory of its caching allocators. Nothing
// in here waits for a device.
#include "inspectors/device/functions.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda/current_device.h"
#include "cuda/kernels.h"
#include "cuda/launch_plan.h"

namespace lockstep::cuda {
namespace {

using Purpose = LaunchPlan::Purpose;

/// A plan's table and scratch on the device, filled by one copy that is queued on the current stream.
struct DeviceMemory {
  at::Tensor table, scratch;
};

DeviceMemory place_on_device(const LaunchPlan& plan, c10::Device device) {
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  const auto table_bytes = static_cast<int64_t>(plan.table_bytes());
  // The allocator of pinned memory gives a block away again only when the copy out of it has ended.
  at::Tensor host = at::empty({table_bytes}, bytes.device(at::kCPU).pinned_memory(true));
  plan.write_table(host.mutable_data_ptr<uint8_t>());
  DeviceMemory memory;
  memory.table = at::empty({table_bytes}, bytes.device(device));
  memory.table.copy_(host, /*non_blocking=*/true);
  // Memory that is freed when its work is queued is given to later work of the same stream only.
  memory.scratch = at::empty({static_cast<int64_t>(plan.scratch_bytes())}, bytes.device(device));
  return memory;
}

c10::Device device_of(at::TensorList tensors) {
  TORCH_CHECK(!tensors.empty(), "no tensors were given, so there is no device to work on");
  TORCH_CHECK(tensors[0].defined() && tensors[0].is_cuda(), "the first tensor is on no CUDA device");
  return tensors[0].device();
}

void refuse_capture() {
  TORCH_CHECK(c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None,
              "fingerprints and checks for NaN can't be captured into a CUDA graph: their tables of tensors are made "
              "anew for each launch. Look at the tensors before the capture, or between replays");
}

at::Tensor fingerprint(at::TensorList tensors) {
  const c10::cuda::CUDAGuard guard(device_of(tensors));
  refuse_capture();
  const at::NoGradGuard no_grad;
  const LaunchPlan plan(tensors, Purpose::fingerprint);
  const DeviceMemory memory = place_on_device(plan, guard.current_device());
  auto* table = memory.table.mutable_data_ptr<uint8_t>();
  if (plan.blocks() > 0)
    C10_CUDA_CHECK(launch_fingerprint(plan.fingerprint_launch(table, memory.scratch.mutable_data_ptr<uint8_t>()),
                                      plan.blocks(), c10::cuda::getCurrentCUDAStream().stream()));
  const auto count = static_cast<int64_t>(plan.tensors());
  constexpr auto kRow = static_cast<int64_t>(sizeof(FingerprintRecord));
  return memory.table.narrow(0, static_cast<int64_t>(plan.output_offset()), count * kRow)
      .view(at::kLong)
      .view({count, kRow / 8});
}

at::Tensor first_bad(at::TensorList tensors) {
  const c10::cuda::CUDAGuard guard(device_of(tensors));
  refuse_capture();
  const at::NoGradGuard no_grad;
  const LaunchPlan plan(tensors, Purpose::sentinel);
  const DeviceMemory memory = place_on_device(plan, guard.current_device());
  auto* table = memory.table.mutable_data_ptr<uint8_t>();
  if (plan.blocks() > 0)
    C10_CUDA_CHECK(
        launch_sentinel(plan.sentinel_launch(table), plan.blocks(), c10::cuda::getCurrentCUDAStream().stream()));
  return memory.table.narrow(0, static_cast<int64_t>(plan.output_offset()), sizeof(int32_t)).view(at::kInt);
}

/// Runs before the first launch, which would wait for kernels that run, and on the device that is in use.
void load_kernels_early() {
  try {
    const auto device = c10::cuda::getDeviceIndexWithPrimaryContext();
    if (!device) return;
    const CurrentDevice current(*device);
    if (current && load_kernels() != cudaSuccess) static_cast<void>(cudaGetLastError());
  } catch (const std::exception&) {  // no driver, or no LibTorch with CUDA: there is nothing to launch
  }
}

const inspect::DeviceFunctions kFunctions{.fingerprint = fingerprint, .first_bad = first_bad};

}  // namespace
}  // namespace lockstep::cuda

/// liblockstep asks for this symbol (inspectors/device/functions.h).
extern "C" __attribute__((visibility("default"))) const lockstep::inspect::DeviceFunctions*
lockstep_device_functions() {
  lockstep::cuda::load_kernels_early();
  return &lockstep::cuda::kFunctions;
}
